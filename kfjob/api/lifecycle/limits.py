"""Stop a job that exceeds a limit of its `watchdog`."""

from __future__ import annotations

from kfjob.api.lifecycle.stop import stop
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.errors import JobStopped
from kfjob.observe.limits import find_exceeded_limit
from kfjob.observe.view import JobView


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
    folder = stop(target, job, uid=ref.uid)
    hint = f"its logs are in {folder}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    raise JobStopped(f"job `{job}` was stopped: {reason}", cause=view.headline, hint=hint)
