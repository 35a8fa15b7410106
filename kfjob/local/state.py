"""The state of a launch as readers see it: what the supervisor has written, corrected where it could not write.

A supervisor may be dead, and its disk may be full. What is not known is not called a failure.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.base.errors import NotFound
from kfjob.joblog.events import JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.local import processes, reserved_state
from kfjob.local.launch import is_supervised
from kfjob.local.launch_spec import STOPPED_BY_COMMAND

OUTCOME_UNKNOWN = "OutcomeUnknown"
SUPERVISOR_DIED = "SupervisorDied"


def read_state(launch: Path) -> JobSnapshot | None:
    """Return the state of the launch; None if its folder does not exist."""
    supervised = is_supervised(launch)  # checked first, because a supervisor writes its last state before it ends
    snapshot = _read_newest(launch)
    if snapshot is None or snapshot.job.phase.ended:
        return snapshot
    if supervised:
        return _mark_unknown(snapshot, JobPhase.RUNNING) if _lacks_outcome(launch, snapshot) else snapshot
    return _correct(launch, snapshot)


def read_stopped(launch: Path, *, was_supervised: bool) -> JobSnapshot | None:
    """Return the final state of a launch whose processes a stop has ended; None if its folder does not exist."""
    snapshot = _read_newest(launch)
    if snapshot is None or snapshot.job.phase.ended:
        return snapshot
    corrected = _correct(launch, snapshot)
    if not was_supervised:
        return corrected
    stopped = replace(corrected.job, phase=JobPhase.STOPPED, reason="Stopped", message=STOPPED_BY_COMMAND)
    return replace(corrected, job=stopped)


def read_pod_state(launch: Path, pod: str) -> PodChanged | None:
    """Return the state of one pod; None if it does not exist."""
    snapshot = read_state(launch)
    return next((state for state in snapshot.pods if state.pod == pod), None) if snapshot else None


def _read_newest(launch: Path) -> JobSnapshot | None:
    try:
        stat = (launch / folder.STATUS).stat()
        return reserved_state.read(launch, _read_cached(launch, stat.st_ino, stat.st_mtime_ns))
    except (NotFound, FileNotFoundError, NotADirectoryError):
        return None


@lru_cache(maxsize=64)
def _read_cached(launch: Path, _inode: int, _changed: int) -> JobSnapshot:
    """Return the snapshot of one version of the file: many readers look ten times a second, and it seldom changes."""
    return folder.read_snapshot(launch)


def _correct(launch: Path, snapshot: JobSnapshot) -> JobSnapshot:
    """Return the state of a job without a supervisor."""
    if processes.find_marked(f"{snapshot.uid}/"):
        message = "the job has lost its supervisor, and its processes still run"
        return replace(snapshot, job=replace(snapshot.job, reason="Unsupervised", message=message))
    if _is_disk_full(launch):
        return _mark_unknown(snapshot, JobPhase.STOPPED)
    reason, message = SUPERVISOR_DIED, "the job's supervisor died, and its agents were ended"
    return _mark_pods(snapshot, JobPhase.FAILED, PodPhase.FAILED, reason, message)


def _mark_unknown(snapshot: JobSnapshot, phase: JobPhase) -> JobSnapshot:
    return _mark_pods(snapshot, phase, PodPhase.UNKNOWN, OUTCOME_UNKNOWN, "outcome unknown (disk full)")


def _mark_pods(snapshot: JobSnapshot, phase: JobPhase, pod_phase: PodPhase, reason: str, message: str) -> JobSnapshot:
    pods = tuple(
        pod if pod.phase.ended else replace(pod, phase=pod_phase, ready=False, reason=reason, message=message)
        for pod in snapshot.pods
    )
    return replace(snapshot, job=replace(snapshot.job, phase=phase, reason=reason, message=message), pods=pods)


def _lacks_outcome(launch: Path, snapshot: JobSnapshot) -> bool:
    """Return whether the supervisor cannot write that the job's processes have ended."""
    is_ready = any(pod.ready for pod in snapshot.pods)
    return is_ready and _is_disk_full(launch) and not processes.find_marked(f"{snapshot.uid}/")


def _is_disk_full(launch: Path) -> bool:
    try:
        stat = os.statvfs(launch)
    except OSError:
        return False
    return stat.f_bavail == 0 or (stat.f_files > 0 and stat.f_favail == 0)
