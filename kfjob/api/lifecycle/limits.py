"""Stop a job that exceeds a limit of its `watchdog`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from kfjob.api.lifecycle.stop import stop
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.base.errors import JobStopped
from kfjob.joblog.events import JobChanged, JobPhase
from kfjob.joblog.view.job_view import LIMIT_EXCEEDED, JobView
from kfjob.joblog.view.silence import describe_silence, find_silence
from kfjob.joblog.view.watchdog_limits import find_exceeded_limit


@dataclass(frozen=True)
class LimitStop:
    """The stop of a job that exceeded a limit."""

    end: JobChanged
    error: JobStopped


def enforce_limits(target: Target, ref: JobRef, view: JobView) -> LimitStop | None:
    """Stop the job if it exceeds one of its limits; None if it is within all limits.

    Raises:
        WaitTimeout, Unreachable, Forbidden: the job could not be stopped.
    """
    reason = find_exceeded_limit(view)
    if reason is None or view.job is None:
        return None
    job = ref.name
    archived = stop(target, job, uid=ref.uid)
    end = replace(view.job, phase=JobPhase.STOPPED, reason=LIMIT_EXCEEDED, message=reason, ended=view.now, time=view.now)
    if archived:
        _record_end(archived, end)
    hint = f"its logs are in {archived}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    return LimitStop(end, JobStopped(f"job `{job}` was stopped: {reason}", cause=_describe_state(view), hint=hint))


def _describe_state(view: JobView) -> str | None:
    """Return what the job did before; None if it only ran."""
    if silence := find_silence(view):
        return describe_silence(silence)
    return view.headline if view.headline != view.phase else None


def _record_end(archived: Path, end: JobChanged) -> None:
    """Write into the archived state why the job was stopped, for `status` and `diagnose`."""
    snapshot = folder.read_snapshot(archived)
    job = replace(snapshot.job, phase=end.phase, reason=end.reason, message=end.message)
    folder.write_snapshot(archived, replace(snapshot, job=job))
