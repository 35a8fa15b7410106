"""The loss curve: points by step, with a bounded length."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from msgspec import Struct

MAX_POINTS = 512
"""Points of the loss curve; a longer curve drops every second point."""


class Point(Struct, frozen=True):
    """One point of the loss curve."""

    step: int  # step of the whole run
    loss: float  # loss, as printed
    time: int | None  # time of the line
    smoothed: float | None = None  # loss averaged with the points before
    lr: float | None = None  # learning rate
    speed: float | None = None  # as printed


Curve = tuple[Point, ...]


def mean_loss(points: Iterable[Point]) -> float | None:
    """Return the mean of the finite losses; NaN where all are NaN or infinite, None without a point."""
    losses = [point.loss for point in points]
    finite = [loss for loss in losses if math.isfinite(loss)]
    return sum(finite) / len(finite) if finite else math.nan if losses else None


def append_point(curve: Curve, point: Point, interval: int, *, replaces: bool) -> tuple[Curve, int]:
    """Return the curve with a newer point, and its readings per point. `replaces`: the newest point may be of the same step."""
    if replaces and curve and curve[-1].step == point.step:
        curve = curve[:-1]
    return _limit_curve(curve + (point,), interval)  # noqa: RUF005 - a half of the time of `(*curve, point)`


def insert_point(curve: Curve, point: Point, interval: int) -> tuple[Curve, int]:
    """Return the curve with a point of an earlier step, and its readings per point."""
    place = bisect_right(curve, point.step, key=attrgetter("step"))
    return _limit_curve((*curve[:place], point, *curve[place:]), interval)


def _limit_curve(curve: Curve, interval: int) -> tuple[Curve, int]:
    """Return the curve and its readings per point; of a curve that is too long, every second point stays."""
    return (curve, interval) if len(curve) <= MAX_POINTS else (curve[::2], interval * 2)
