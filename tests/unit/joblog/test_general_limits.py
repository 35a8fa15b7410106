"""Limits of the general reader: the work on a long line, and the memory for a log of many layouts."""

from __future__ import annotations

import itertools
import pickle
import sys
from collections.abc import Callable

import pytest

from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.progress.exact_formats import progress_reader
from kfjob.joblog.progress.general.log_reader import read_progress
from kfjob.joblog.progress.general.reader_state import ReaderState
from tests.unit.joblog.general_formats import FORMATS

MAX_STATE = 1_000_000
"""Bytes of one container's reader, as docs/reference/progress.md states."""
LINE = 64 * 1024
EXTRA = {name: name for name in ("[1", "1,", "{'a': ", "{", "(((", "%|", "- ", "a/b:", "1:", "Epoch", "\x1b[", "0x", "│ ")}
UNITS = {**{name: lines[-1].strip() + " " for name, (lines, _) in FORMATS.items()}, **EXTRA}


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python and of C are called."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize(
    ("name", "joint"), [*((name, "") for name in UNITS), *((name, "\r") for name in UNITS if "bar" in name)]
)
def test_work_is_linear_in_the_length_of_a_line(name: str, joint: str):
    def work(length: int) -> int:
        text = "loss " + (UNITS[name] + joint) * (length // len(UNITS[name] + joint))
        block = f"{text}\n".encode()
        read = count_calls(lambda: read_progress(text, 0, None, progress_reader(), ReaderState()))
        return read + count_calls(lambda: Prefilter(ObserveConfig()).select(block))

    work(LINE)  # fill the caches
    assert work(LINE) <= 2.2 * work(LINE // 2) + 2000


@pytest.mark.parametrize("lines", [500, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_memory_is_bounded_for_a_log_of_many_layouts(lines: int):
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ("".join(word) for word in itertools.product(letters, repeat=5))
    reader, formats, sizes = ReaderState(), progress_reader(), []
    for number, word in enumerate(itertools.islice(words, lines)):
        text = f"step {number} {word}_loss {number}.5 lr 0.1 " + f"{word} {number} " * 20
        reader, _ = read_progress(text, number, None, formats, reader)
        if number % (lines // 5) == lines // 5 - 1:
            sizes.append(len(pickle.dumps(reader)))
    assert max(sizes) <= MAX_STATE
    assert sizes[-1] <= 1.1 * sizes[1]
