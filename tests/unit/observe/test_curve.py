"""The loss curve: of bounded length, and in the order of steps."""

from __future__ import annotations

from kfjob.observe.progress import Reading
from kfjob.observe.training import MAX_POINTS, Training


def test_late_points_are_kept_in_order_and_bounded():
    training = Training().with_reading(Reading(format="x", step=5000, loss=1.0), pod="w-0", time=None)
    for step in range(2000):
        training = training.with_reading(Reading(format="x", step=step, loss=2.0, late=True), pod="w-0", time=None)
    steps = [point.step for point in training.curve]
    assert MAX_POINTS // 4 < len(steps) <= MAX_POINTS
    assert steps == sorted(steps)
    assert training.lines == 2001
    assert training.first_loss == 1.0
