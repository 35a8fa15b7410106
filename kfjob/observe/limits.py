"""Has a job gone over its limits? A function of what was seen of it.

The operator's own limits act late or never, and delete the logs with the pods (v1.9.3: `activeDeadlineSeconds` waits for
another event, `backoffLimit` counts running pods only), and of a stall or of a crash loop it knows nothing.
"""

from __future__ import annotations

from kfjob.events import JobPhase, PodPhase
from kfjob.observe.config import Limits
from kfjob.observe.view import JobView
from kfjob.units import SECOND


def find_exceeded_limit(view: JobView) -> str | None:
    """The limit that the job is over, in words; None while it is within all of them."""
    limits = view.config.limits
    if not view.running or view.job is None or view.phase is JobPhase.SUSPENDED:
        return None
    return _crashes(view, limits) or _deadline(view, limits) or _pending(view, limits) or _stall(view, limits)


def _crashes(view: JobView, limits: Limits) -> str | None:
    for pod in view.pods.values():
        if limits.crashes is not None and pod.state and pod.state.restarts >= limits.crashes:
            return f"pod `{pod.name}` was restarted {pod.state.restarts} times, and its watchdog allows {limits.crashes - 1}"
    return None


def _deadline(view: JobView, limits: Limits) -> str | None:
    started = view.job.started if view.job else None
    return _over("it has run for", since=started, now=view.now, most=limits.deadline)


def _pending(view: JobView, limits: Limits) -> str | None:
    for pod in view.pods.values():
        if pod.state and pod.state.phase is PodPhase.PENDING:
            what = f"pod `{pod.name}` has waited for"
            if said := _over(what, since=pod.state.created, now=view.now, most=limits.pending):
                return said
    return None


def _stall(view: JobView, limits: Limits) -> str | None:
    return _over("no progress for", since=view.training.last_time, now=view.now, most=limits.stall)


def _over(what: str, *, since: int | None, now: int | None, most: int | None) -> str | None:
    if most is None or since is None or now is None or now - since <= most * SECOND:
        return None
    return f"{what} {(now - since) // SECOND} s, and its watchdog allows {most} s"
