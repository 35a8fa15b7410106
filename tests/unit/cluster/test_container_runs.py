from __future__ import annotations

from typing import Any

import pytest

from kfjob.cluster.container_runs import ContainerRun, LogPosition, NextRun, NoRun, list_runs, next_run, select_run


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
A = ContainerRun(id="a", number=0, ended=True, previous=False)
B = ContainerRun(id="b", number=1, ended=False, previous=False)
A_RUNNING, A_BEFORE = (
    ContainerRun(id="a", number=0, ended=False, previous=False),
    ContainerRun(id="a", number=0, ended=True, previous=True),
)
C_BEFORE = ContainerRun(id="c", number=2, ended=True, previous=True)


@pytest.mark.parametrize(
    ("there", "position", "then"),
    [
        (PENDING, None, NoRun.WAIT),
        (EVICTED, None, NoRun.END),
        (FIRST, None, NextRun(A_RUNNING)),
        (FIRST, LogPosition("a", 0, complete=False), NextRun(A_RUNNING)),
        (CRASHED, LogPosition("a", 0, complete=False), NextRun(A)),
        (CRASHED, LogPosition("a", 0, complete=True), NoRun.WAIT),
        (BACK_OFF, None, NextRun(A_BEFORE)),
        (BACK_OFF, LogPosition("a", 0, complete=False), NextRun(A_BEFORE)),
        (BACK_OFF, LogPosition("a", 0, complete=True), NoRun.WAIT),
        (SECOND, None, NextRun(B)),
        (SECOND, LogPosition("a", 0, complete=False), NextRun(A_BEFORE)),
        (SECOND, LogPosition("a", 0, complete=True), NextRun(B)),
        (FOURTH, LogPosition("b", 1, complete=True), NextRun(C_BEFORE)),
        (FOURTH, LogPosition("b", 1, complete=False), NextRun(C_BEFORE, missed=True)),
        (FOURTH, LogPosition("a", 0, complete=True), NextRun(C_BEFORE, missed=True)),
        (ENDED, None, NextRun(A)),
        (ENDED, LogPosition("a", 0, complete=True), NoRun.END),
    ],
)
def test_next_run(there: dict[str, Any], position: LogPosition | None, then: NextRun | NoRun):
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
def test_each_line_is_new_once(there: dict[str, Any], newest: str | None, before: str | None):
    shown = [select_run(there, "pytorch", previous=previous) for previous in (False, True)]
    assert [run and run.id for run in shown] == [newest, before]


def test_an_init_container_has_runs_too():
    there = pod(running())
    there["status"]["initContainerStatuses"] = [{"name": "wait-for-etcd", "state": terminated("i")}]
    assert [run.id for run in list_runs(there, "wait-for-etcd")] == ["i"]
    assert list_runs(there, "nobody") == []
