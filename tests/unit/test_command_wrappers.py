"""The program of a command is found behind variables and wrappers, in one pass over the words."""

from __future__ import annotations

from typing import Any

import pytest

from kfjob.plan import unconnected_programs
from kfjob.plan.unconnected_programs import split_commands


class CountedList(list[str]):
    """A list that counts the words that its slices copy."""

    copied = 0

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        if isinstance(index, slice):
            CountedList.copied += len(item)
            return CountedList(item)
        return item


@pytest.mark.parametrize("wrapper", ["A=1", "exec", "command", "time"])
def test_many_wrappers_are_read_in_one_pass(wrapper, monkeypatch):
    count = 500
    monkeypatch.setattr(CountedList, "copied", 0)
    words = CountedList([wrapper] * count + ["torchrun", "train.py"])
    assert list(unconnected_programs._skip_wrappers(words)) == ["torchrun", "train.py"]
    assert CountedList.copied < 10 * count


@pytest.mark.parametrize(
    "command",
    ["A=1 B=2 python t.py", "exec timeout 5 python t.py", "uv run --frozen python t.py", "A=1 uv run nice -n 5 python t.py"],
)
def test_program_is_found_behind_wrappers(command):
    assert list(split_commands(command.split())) == [["python", "t.py"]]


def test_wrappers_without_a_program_have_no_words():
    assert list(split_commands(["A=1", "exec", "B=2"])) == [[]]
