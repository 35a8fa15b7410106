"""A diagnosis in mid-stream changes no later one."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest

import pytest

from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.diagnose.warnings import DistinctWarning
from kfjob.joblog.events import Event, JobChanged, JobPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.diagnose.cases import get_cause, line, lines, recorded
from tests.unit.diagnose.texts import MESSAGES

A, B = "a-worker-0", "a-worker-1"
FAILED = JobChanged(phase=JobPhase.FAILED)
KEY_ERROR = """
Traceback (most recent call last):
  File "/w/train.py", line 7, in main
    step()
KeyError: 'x'
"""
ABORT = """
terminate called after throwing an instance of 'std::runtime_error'
  what():  odd
"""
CHAIN = f"""{KEY_ERROR}
During handling of the above exception, another exception occurred:
{KEY_ERROR.replace("KeyError: 'x'", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.")}"""
RAISED_WARNING = KEY_ERROR.replace("KeyError: 'x'", "UserWarning: odd value 3\n  in column 4")
BLOCKS = [KEY_ERROR, ABORT, CHAIN, RAISED_WARNING, 2 * KEY_ERROR, *(text.text for text in MESSAGES)]


def diagnose_stream(events: Iterable[Event], *, after_each: bool) -> tuple[Diagnosis, list[DistinctWarning]]:
    view, collector = JobView(), SymptomCollector()
    for event in events:
        view = reduce(view, event)
        collector.feed(event, view)
        if after_each:
            diagnosis = diagnose(collector, view, job="a")
            collector.warnings.ranked(diagnosis.harmless_rules | {"", "exception"})
    return diagnose(collector, view, job="a"), collector.warnings.ranked()


@pytest.mark.parametrize("text", BLOCKS, ids=lambda text: text.strip().split("\n")[0][:40])
@pytest.mark.parametrize("pods", [(A,), (A, B)], ids=["one pod", "two pods"])
def test_diagnosis_after_every_line_changes_no_later_one(text: str, pods: tuple[str, ...]):
    streams = [lines(index * "Batch 7\n" + text, pod=pod) for index, pod in enumerate(pods)]
    events = [event for row in zip_longest(*streams) for event in row if event is not None]
    for end in ([], [FAILED], [line("Batch 8"), FAILED], [line("started", pod=A, container="d"), FAILED]):
        stream = [*events, *end]
        assert diagnose_stream(stream, after_each=True) == diagnose_stream(stream, after_each=False)


def test_diagnosis_after_every_line_of_a_recording_changes_no_later_one():
    events = [*recorded("2.15.0-c10d-worker-exception-norestart"), FAILED]
    assert diagnose_stream(events, after_each=True) == diagnose_stream(events, after_each=False)


def test_diagnosis_in_a_crash_keeps_its_first_line():
    diagnosis, _ = diagnose_stream([*lines(ABORT), FAILED], after_each=True)
    assert get_cause(diagnosis).evidence == (
        "terminate called after throwing an instance of 'std::runtime_error'",
        "what():  odd",
    )
