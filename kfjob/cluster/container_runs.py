"""The runs of a pod's container, from the pod's status, and which run's log to read next. Pure.

The kubelet keeps the logs of two runs: the newest, and (`previous=true`) the one before it. While a container waits for its
restart, the newest run is the one that ended last.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from kfjob.base.common_types import JsonObject
from kfjob.cluster.pods import container_status
from kfjob.joblog.events import PodPhase


class ContainerRun(Struct, frozen=True):
    """One run of a container, whose log can be read."""

    id: str  # the container id
    number: int  # 0 for the first run in this pod
    ended: bool
    previous: bool  # the kubelet serves its log with `previous=true`


class NoRun(Enum):
    """What to do when there is no log to read."""

    WAIT = "the pod has not started, or its container will restart"
    END = "the container will not run again"


class LogPosition(Struct, frozen=True):
    """The run read last, and whether its end was reached."""

    id: str
    number: int
    complete: bool


class NextRun(Struct, frozen=True):
    """The run to read next, and whether the logs of runs before it are lost."""

    run: ContainerRun
    missed: bool = False


def list_runs(pod: JsonObject, container: str) -> list[ContainerRun]:
    """Return the runs whose logs the kubelet has, the older one first."""
    status = container_status(pod, container)
    state = status.get("state") or {}
    number = int(status.get("restartCount") or 0)
    runs = []
    if last := (status.get("lastState") or {}).get("terminated"):
        before = 0 if "waiting" in state else 1  # the count increases when the container restarts
        runs.append(ContainerRun(id=last.get("containerID") or "", number=number - before, ended=True, previous=True))
    for kind in ("running", "terminated"):
        if kind in state:
            run_id = (state[kind] or {}).get("containerID") or status.get("containerID") or ""
            runs.append(ContainerRun(id=run_id, number=number, ended=kind == "terminated", previous=False))
    return runs


def select_run(pod: JsonObject, container: str, *, previous: bool) -> ContainerRun | None:
    """Return the run whose log to read once: the newest, or with `previous` the one before the last restart.

    Once a restarted container has ended too, the kubelet removes the log of the run before it. For 13 s (measured), until the
    status is CrashLoopBackOff, the status names the removed run as the previous one. Then the run that ended last is returned.
    """
    runs = list_runs(pod, container)
    if not previous:
        return runs[-1] if runs else None
    if runs and runs[-1].ended and runs[-1].number > 0 and _wait_or_end(pod) is NoRun.WAIT:
        return runs[-1]
    return next((run for run in runs if run.previous), None)


def next_run(pod: JsonObject, container: str, position: LogPosition | None) -> NextRun | NoRun:
    """Return the run to read after `position`; with None, the newest run."""
    runs = list_runs(pod, container)
    if position is None:
        return NextRun(runs[-1]) if runs else _wait_or_end(pod)
    if any(run.id == position.id for run in runs):
        rest = [run for run in runs if run.number > position.number or (run.id == position.id and not position.complete)]
        return NextRun(rest[0]) if rest else _wait_or_end(pod)
    if not runs:
        return _wait_or_end(pod)
    return NextRun(runs[0], missed=not position.complete or runs[0].number > position.number + 1)


def _wait_or_end(pod: JsonObject) -> NoRun:
    phase = (pod.get("status") or {}).get("phase")
    return NoRun.END if phase in {PodPhase.SUCCEEDED, PodPhase.FAILED} else NoRun.WAIT
