"""The runs of a pod's container, as its status tells of them, and which one's log to read next. Pure.

The kubelet keeps the logs of two runs: the newest, and (`previous=true`) the one before. While a container waits to be started
again its newest run is the one that ended last.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from kfjob.backends.kubernetes.objects import Object, container_status
from kfjob.events import PodPhase


class ContainerRun(Struct, frozen=True):
    """One run of a container, whose log can be read."""

    id: str  # the container's
    number: int  # 0 for the first run in this pod
    ended: bool
    previous: bool  # where the kubelet finds it


class NoRun(Enum):
    """What to do where there is nothing to read."""

    WAIT = "the pod has not begun, or its container will be started again"
    END = "nothing will come any more"


class LogPosition(Struct, frozen=True):
    """The run that was read last, and whether it was read to its end."""

    id: str
    number: int
    complete: bool


class NextRun(Struct, frozen=True):
    """The run to read, and whether runs before it were missed."""

    run: ContainerRun
    missed: bool = False


def runs(pod: Object, container: str) -> list[ContainerRun]:
    """Those whose logs the kubelet has, the older one first."""
    status = container_status(pod, container)
    state = status.get("state") or {}
    number = int(status.get("restartCount") or 0)
    found = []
    if last := (status.get("lastState") or {}).get("terminated"):
        before = 0 if "waiting" in state else 1  # the count goes up when the container is started again
        found.append(ContainerRun(id=last.get("containerID") or "", number=number - before, ended=True, previous=True))
    for kind in ("running", "terminated"):
        if kind in state:
            run_id = (state[kind] or {}).get("containerID") or status.get("containerID") or ""
            found.append(ContainerRun(id=run_id, number=number, ended=kind == "terminated", previous=False))
    return found


def select_run(pod: Object, container: str, *, previous: bool) -> ContainerRun | None:
    """The run that is meant when its log is asked for once: the newest, or the one before the last restart.

    Once a restarted container has ended too, the kubelet removes the log of the run before it, and until it calls that
    CrashLoopBackOff (13 s, seen) names the removed one as the previous. The one that ended last is meant then as well.
    """
    known = runs(pod, container)
    if not previous:
        return known[-1] if known else None
    if known and known[-1].ended and known[-1].number > 0 and _wait_or_end(pod) is NoRun.WAIT:
        return known[-1]
    return next((run for run in known if run.previous), None)


def next_run(pod: Object, container: str, position: LogPosition | None) -> NextRun | NoRun:
    """What to read after `position`; with None, begin with the newest run."""
    known = runs(pod, container)
    if position is None:
        return NextRun(known[-1]) if known else _wait_or_end(pod)
    if any(run.id == position.id for run in known):
        rest = [run for run in known if run.number > position.number or (run.id == position.id and not position.complete)]
        return NextRun(rest[0]) if rest else _wait_or_end(pod)
    if not known:
        return _wait_or_end(pod)
    return NextRun(known[0], missed=not position.complete or known[0].number > position.number + 1)


def _wait_or_end(pod: Object) -> NoRun:
    return NoRun.END if (pod.get("status") or {}).get("phase") in {PodPhase.SUCCEEDED, PodPhase.FAILED} else NoRun.WAIT
