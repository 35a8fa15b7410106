"""How long `kfjob wait` waits for the guard, on a clock that only its sleeps move."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kfjob.api.lifecycle import wait
from kfjob.api.reader import open_snapshot
from kfjob.api.settings import STOP_TIMEOUT, Settings
from kfjob.api.target import Target
from kfjob.base.errors import NotFound, WaitTimeout
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot

OLD = JobSnapshot(
    name="train", namespace="n", job=JobChanged(phase=JobPhase.FAILED), uid="u1", launch="l1", job_kind="PyTorchJob"
)
NEXT = replace(OLD, uid="u2", launch="l2", relaunches='[{"launch": "l1"}]')
Wait = Callable[..., tuple[str | None, float]]


@pytest.fixture
def wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wait:
    """Return a function that waits while the job has one state a second (None: it is gone), and says what came and when."""

    def run(
        states: Iterable[JobSnapshot | None], *, remains_until: float = 0, timeout: float | None = None
    ) -> tuple[str | None, float]:
        clock, left = [0.0], iter(states)

        def sleep(seconds: float) -> None:
            clock[0] += seconds

        def get(*_: object) -> JobSnapshot:
            if state := next(left):
                return state
            raise NotFound("there is no job `train`")

        monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
        monkeypatch.setattr(Target, "get_job", get)
        monkeypatch.setattr(Target, "cluster", SimpleNamespace(has_remains=lambda _: clock[0] < remains_until))
        reader = open_snapshot(Target(Settings(state=tmp_path), "kubernetes", "n"), OLD)
        found = wait.wait_for_relaunch(reader, timeout=timeout)
        return (found.ref.launch if found else None), clock[0]

    return run


def test_next_launch_of_the_guard_is_returned(wait_for: Wait):
    assert wait_for([OLD, OLD, None, NEXT]) == ("l2", 3)
    slow = chain([OLD], repeat(None, 70), [NEXT])  # pods that take a minute to end, and another guard that completes it
    assert wait_for(slow, remains_until=45) == ("l2", 71)


def test_launch_of_a_person_is_another_job(wait_for: Wait):
    assert wait_for([OLD, None, replace(NEXT, relaunches="")]) == (None, 2)


def test_job_that_was_given_up_ends_the_wait(wait_for: Wait):
    assert wait_for([OLD, replace(OLD, guard_decision="the same failure twice")]) == (None, 1)


def test_job_without_a_guard_or_that_a_person_stops_ends_the_wait(wait_for: Wait):
    assert wait_for(repeat(OLD)) == (None, wait.GUARD_SECONDS)
    assert wait_for(repeat(None)) == (None, wait.REPLACE_SECONDS)


def test_pod_of_a_lost_node_does_not_hold_the_wait_for_ever(wait_for: Wait):
    assert wait_for(repeat(None), remains_until=10_000) == (None, STOP_TIMEOUT)


def test_time_of_the_user_ends_the_wait(wait_for: Wait):
    with pytest.raises(WaitTimeout, match="has not acted after 5 s"):
        wait_for(repeat(OLD), timeout=5)
