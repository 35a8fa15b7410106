"""End a job that has gone over its limits."""

from __future__ import annotations

from kfjob.api.lifecycle.stop import stop
from kfjob.api.target import Target
from kfjob.errors import JobStopped
from kfjob.observe.limits import find_exceeded_limit
from kfjob.observe.view import JobView


def enforce(target: Target, job: str, view: JobView) -> None:
    """Stop the job if it is over one of its limits.

    Raises:
        JobStopped: it was.
        WaitTimeout, Unreachable, Forbidden: it should have been.
    """
    why = find_exceeded_limit(view)
    if why is None:
        return
    kept = stop(target, job)
    hint = f"its logs are in {kept}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    raise JobStopped(f"job `{job}` was stopped: {why}", cause=view.headline, hint=hint)
