from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobPhase, PodPhase, Tick
from kfjob.joblog.observe_config import Limits, ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.joblog.view.watchdog_limits import find_exceeded_limit
from tests.unit.api import script

AFTER = script.START + 100 * SECOND


def find_limit(*events: Event, now: int = AFTER, **limits: int) -> str | None:
    view = reduce_all(JobView(config=ObserveConfig(limits=Limits(**limits))), [*events, Tick(time=now)])
    limit = find_exceeded_limit(view)
    return limit.reason if limit else None


@pytest.mark.parametrize(
    ("limit", "just_enough", "problem"),
    [
        ("deadline", 99, "it has run for 99 s, and its watchdog allows 98 s"),
        ("stall", 70, "no progress for 70 s, and its watchdog allows 69 s"),
    ],
)
def test_limit_itself_is_not_exceeded(limit: str, just_enough: int, problem: str):
    assert find_limit(*script.TRAINING, **{limit: just_enough}) is None
    assert find_limit(*script.TRAINING, **{limit: just_enough - 1}) == problem


def test_waiting_pod_is_named():
    events = [*script.STARTING, script.pod(1, PodPhase.PENDING, restarts=1)]
    assert find_limit(*events, pending=99) == "pod `train-worker-1` has waited for 100 s, and its watchdog allows 99 s"
    assert find_limit(*script.STARTING, pending=99) is None


def test_restarts_are_counted_per_pod():
    events = [*script.STARTING, script.pod(0, PodPhase.RUNNING, restarts=2), script.pod(1, PodPhase.RUNNING, restarts=1)]
    assert find_limit(*events, crashes=3) is None
    assert find_limit(*events, crashes=2) == "pod `train-worker-0` was restarted 2 times, and its watchdog allows 1"


@pytest.mark.parametrize("phase", [JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.SUSPENDED])
def test_job_that_does_not_run_has_no_limits(phase: JobPhase):
    assert find_limit(*script.TRAINING, script.job(phase, started=script.START), deadline=1, stall=1) is None


def test_unknown_times_exceed_no_limit():
    without_start = [replace(event, started=None) if event in script.STARTING[3:4] else event for event in script.STARTING]
    assert find_limit(*without_start, deadline=1) is None
    assert find_limit(*script.STARTING, stall=1) is None  # no line yet: a download or a compilation can take long
