"""How far training had come, and whether it came further after a failure: a round that only repeats steps makes no progress."""

from __future__ import annotations

from kfjob.joblog.diagnose.engine.history import Furthest, JobHistory, Occurrence
from kfjob.joblog.lines.timestamps import Timestamp


def got_further(history: JobHistory, failure: Occurrence, near: int | None) -> bool:
    """Return whether a round after the one of this failure came beyond all steps before that round.

    The other ranks print while one fails, so the order of their lines around the failure means nothing. `near` gives a year to
    times without one.
    """
    furthest = _find_furthest(history, near)
    if furthest is None:
        return False
    pod, reached = furthest
    starts = history.pods[failure.pod].starts if failure.pod in history.pods else []
    order, timestamp = next((start for start in starts if start[0] > failure.order), (failure.order, failure.timestamp))
    time, reached_time = _resolve(timestamp, near), _resolve(reached.timestamp, near)
    if pod == failure.pod or time is None or reached_time is None:  # saved logs come one after the other
        return reached.order > order
    return reached_time > time


def _find_furthest(history: JobHistory, near: int | None) -> tuple[str, Furthest] | None:
    """Return the highest epoch and step of all pods, and the pod that had them first."""
    reached = [(name, pod.furthest) for name, pod in history.pods.items() if pod.furthest is not None]
    if not reached:
        return None
    highest = max((item.epoch, item.step) for _, item in reached)
    reached = [(name, item) for name, item in reached if (item.epoch, item.step) == highest]
    times = [_resolve(item.timestamp, near) for _, item in reached]
    if None in times:
        return min(reached, key=lambda item: item[1].order)
    return min(zip(times, reached, strict=True), key=lambda item: item[0] or 0)[1]


def _resolve(timestamp: Timestamp, near: int | None) -> int | None:
    return timestamp.resolve(near) if timestamp.exact else None
