from __future__ import annotations

from typing import Any

import pytest

from kfjob.backends.kubernetes.runs import Next, Position, Run, Then, next_run, run_to_show, runs


def pod(state: dict[str, Any] | None = None, last: str = "", restarts: int = 0, phase: str = "Running") -> dict[str, Any]:
    status: dict[str, Any] = {"name": "pytorch", "restartCount": restarts, "state": state or {}}
    if last:
        status["lastState"] = {"terminated": {"containerID": last}}
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": [status] if state else []}}


def running() -> dict[str, Any]:
    return {"running": {"startedAt": "2026-11-21T09:33:25Z"}}


def terminated(run_id: str) -> dict[str, Any]:
    return {"terminated": {"containerID": run_id, "exitCode": 1}}


WAITING = {"waiting": {"reason": "CrashLoopBackOff"}}


def with_id(thing: dict[str, Any], run_id: str) -> dict[str, Any]:
    thing["status"]["containerStatuses"][0]["containerID"] = run_id
    return thing


PENDING = pod(phase="Pending")
FIRST = with_id(pod(running()), "a")
CRASHED = pod(terminated("a"))
BACK_OFF = pod(WAITING, last="a")
SECOND = with_id(pod(running(), last="a", restarts=1), "b")
FOURTH = with_id(pod(running(), last="c", restarts=3), "d")
ENDED = pod(terminated("a"), phase="Succeeded")
EVICTED = pod(phase="Failed")
A, B = Run(id="a", number=0, ended=True, previous=False), Run(id="b", number=1, ended=False, previous=False)
A_RUNNING, A_BEFORE = Run(id="a", number=0, ended=False, previous=False), Run(id="a", number=0, ended=True, previous=True)
C_BEFORE = Run(id="c", number=2, ended=True, previous=True)


@pytest.mark.parametrize(
    ("there", "position", "then"),
    [
        (PENDING, None, Then.WAIT),
        (EVICTED, None, Then.END),
        (FIRST, None, Next(A_RUNNING)),
        (FIRST, Position("a", 0, complete=False), Next(A_RUNNING)),
        (CRASHED, Position("a", 0, complete=False), Next(A)),
        (CRASHED, Position("a", 0, complete=True), Then.WAIT),
        (BACK_OFF, None, Next(A_BEFORE)),
        (BACK_OFF, Position("a", 0, complete=False), Next(A_BEFORE)),
        (BACK_OFF, Position("a", 0, complete=True), Then.WAIT),
        (SECOND, None, Next(B)),
        (SECOND, Position("a", 0, complete=False), Next(A_BEFORE)),
        (SECOND, Position("a", 0, complete=True), Next(B)),
        (FOURTH, Position("b", 1, complete=True), Next(C_BEFORE)),
        (FOURTH, Position("b", 1, complete=False), Next(C_BEFORE, missed=True)),
        (FOURTH, Position("a", 0, complete=True), Next(C_BEFORE, missed=True)),
        (ENDED, None, Next(A)),
        (ENDED, Position("a", 0, complete=True), Then.END),
    ],
)
def test_what_to_read_next(there: dict[str, Any], position: Position | None, then: Next | Then):
    assert next_run(there, "pytorch", position) == then


@pytest.mark.parametrize(
    ("there", "newest", "before"),
    [
        (PENDING, None, None),
        (FIRST, "a", None),
        (CRASHED, "a", None),
        (BACK_OFF, "a", "a"),
        (SECOND, "b", "a"),
        (pod(terminated("b"), last="a", restarts=1), "b", "b"),  # the log of a is removed in this moment
        (pod(terminated("b"), last="a", restarts=1, phase="Failed"), "b", "a"),
        (ENDED, "a", None),
    ],
)
def test_what_is_shown_once(there: dict[str, Any], newest: str | None, before: str | None):
    shown = [run_to_show(there, "pytorch", previous=previous) for previous in (False, True)]
    assert [run and run.id for run in shown] == [newest, before]


def test_an_init_container_has_runs_too():
    there = pod(running())
    there["status"]["initContainerStatuses"] = [{"name": "wait-for-etcd", "state": terminated("i")}]
    assert [run.id for run in runs(there, "wait-for-etcd")] == ["i"]
    assert runs(there, "nobody") == []
