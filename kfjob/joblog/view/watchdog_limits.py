"""The limits of a job: deadline, waiting time, stall and crash loop.

The operator's own limits act late or never, and up to v1.9.3 they delete the logs with the pods (`activeDeadlineSeconds` waits
for another event, `backoffLimit` counts running pods only). It has no limit for a stall or a crash loop.
"""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.text import plural
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.joblog.observe_config import Limits
from kfjob.joblog.view.job_view import JobView


class ExceededLimit(Struct, frozen=True):
    """A limit that a job exceeds."""

    name: str  # the field of `watchdog`
    reason: str  # a sentence


def find_exceeded_limit(view: JobView) -> ExceededLimit | None:
    """Return the limit that the job exceeds, None while it is within all limits."""
    limits = view.config.limits
    if not view.running or view.job is None or view.phase is JobPhase.SUSPENDED:
        return None
    for name, check in _CHECKS.items():
        if reason := check(view, limits):
            return ExceededLimit(name, reason)
    return None


def _check_crashes(view: JobView, limits: Limits) -> str | None:
    for pod in view.pods.values():
        if limits.crashes is not None and pod.state and pod.state.restarts >= limits.crashes:
            restarts = plural(pod.state.restarts, "time")
            return f"pod `{pod.name}` was restarted {restarts}, and its watchdog allows {limits.crashes - 1}"
    return None


def _check_deadline(view: JobView, limits: Limits) -> str | None:
    started = view.job.started if view.job else None
    return _check_duration("it has run for", since=started, now=view.now, limit=limits.deadline)


def _check_pending(view: JobView, limits: Limits) -> str | None:
    for pod in view.pods.values():
        if pod.state and pod.state.phase is PodPhase.PENDING:
            subject = f"pod `{pod.name}` has waited for"
            if problem := _check_duration(subject, since=pod.state.created, now=view.now, limit=limits.pending):
                return problem
    return None


def _check_stall(view: JobView, limits: Limits) -> str | None:
    return _check_duration("no progress for", since=view.training.last_time, now=view.now, limit=limits.stall)


def _check_duration(subject: str, *, since: int | None, now: int | None, limit: int | None) -> str | None:
    """Return a sentence if more than `limit` seconds have passed since then."""
    if limit is None or since is None or now is None or now - since <= limit * SECOND:
        return None
    return f"{subject} {(now - since) // SECOND} s, and its watchdog allows {limit} s"


_CHECKS = {"crashes": _check_crashes, "deadline": _check_deadline, "pending": _check_pending, "stall": _check_stall}
