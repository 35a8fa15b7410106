"""Stop a job that exceeds a limit of its `watchdog`."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from kfjob.api.lifecycle.stop import stop
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.errors import JobStopped
from kfjob.events import JobPhase
from kfjob.observe.limits import find_exceeded_limit
from kfjob.observe.view import LIMIT_EXCEEDED, JobView


def enforce_limits(target: Target, ref: JobRef, view: JobView) -> None:
    """Stop the job if it exceeds one of its limits.

    Raises:
        JobStopped: the job was stopped.
        WaitTimeout, Unreachable, Forbidden: the job could not be stopped.
    """
    reason = find_exceeded_limit(view)
    if reason is None:
        return
    job = ref.name
    archived = stop(target, job, uid=ref.uid)
    if archived:
        _record_reason(archived, reason)
    hint = f"its logs are in {archived}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    raise JobStopped(f"job `{job}` was stopped: {reason}", cause=view.headline, hint=hint)


def _record_reason(archived: Path, reason: str) -> None:
    """Write into the archived state why the job was stopped, for `status` and `diagnose`."""
    snapshot = folder.read_snapshot(archived)
    end = replace(snapshot.job, phase=JobPhase.STOPPED, reason=LIMIT_EXCEEDED, message=reason)
    folder.write_snapshot(archived, replace(snapshot, job=end))
