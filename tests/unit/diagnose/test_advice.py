"""Exceptions that no rule knows: their own advice."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import LogLine
from tests.unit.diagnose.cases import examine, find_cause, get_cause, read_cause

FRAMES = """Traceback (most recent call last):
  File "/w/train.py", line 7, in step
    label = batch["labels"]
  File "/opt/venv/lib/python3.11/site-packages/torch/x.py", line 1, in f
    g()
"""


@pytest.mark.parametrize("error", ["KeyError: 'labels'", "IndexError: list index out of range", "AssertionError"])
def test_cause_does_not_repeat_the_message(error: str):
    first = read_cause(f"{FRAMES}{error}")
    assert first.cause == ""
    assert first.place == "/w/train.py:7"


def test_cause_that_repeats_the_quoted_line_is_left_out():
    first = read_cause("train.py: error: unrecognized arguments: --lr-decay")
    assert first.evidence == ("train.py: error: unrecognized arguments: --lr-decay",)
    assert first.cause == ""


@pytest.mark.parametrize("advice", [
    "Please use a longer context.",
    "Make sure that the file is complete.",
    "Consider a smaller rank.",
    "You can pass `x=True`.",
    "See https://docs.org/x for help.",
])  # fmt: skip
@pytest.mark.parametrize("form", ["a.b.FooError: It is too long. {} Other words.", "a.b.FooError: It is too long.\n  {}"])
def test_advice_of_the_message_is_the_hint(advice: str, form: str):
    assert f"the message advises: {advice}" in read_cause(FRAMES + form.format(advice)).remedy


def test_message_may_begin_below_its_class():
    cause = read_cause(f"{FRAMES}a.b.FooError:\n      The rank is wrong.\n      Please use 8.")
    assert cause.title == "the program ended with `a.b.FooError: The rank is wrong.`"
    assert "Please use 8." in cause.remedy


def test_message_of_a_library_may_have_paragraphs():
    text = "datasets.exceptions.CastError: cannot cast\n\nThis happened while reading\n\n/data/part-7.jsonl"
    assert "/data/part-7.jsonl" in read_cause(FRAMES + text).evidence


def test_sharp_cause_comes_before_a_guess_in_another_pod():
    events = [
        LogLine(pod="a", text="RuntimeError: DataLoader worker (pid(s) 44) exited unexpectedly"),
        LogLine(pod="b", text="ERROR: Unexpected bus error encountered in worker. Maybe insufficient shared memory (shm)."),
    ]
    first = find_cause(events)
    assert (first.rule, first.pod) == ("shm-too-small", "b")


@pytest.mark.parametrize("text", [
    "DistBackendError: NCCL error in: x.hpp:268, remote process exited or there was a network error, NCCL version 2",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
])  # fmt: skip
def test_lost_peer_is_a_consequence_of_an_unknown_exception_in_another_pod(text: str):
    events = [LogLine(pod="a", text=text), *(LogLine(pod="b", text=line) for line in f"{FRAMES}KeyError: 'x'".splitlines())]
    diagnosis, _ = examine(events)
    assert get_cause(diagnosis).pod == "b"
    assert [issue.rule for issue in diagnosis.consequences] == ["peer-closed"]


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
@pytest.mark.parametrize("error", ["SyntaxError: unmatched ')'", "IndentationError: unexpected indent"])
def test_syntax_error_names_its_file_and_quotes_the_line(error: str, prefix: str):
    lines = ['  File "/w/main.py", line 42', "    trainset = Data())", "                     ^", error]
    cause = read_cause("\n".join(prefix + line for line in lines))
    assert cause.place == "/w/main.py:42"
    assert any("trainset = Data())" in line for line in cause.evidence)
