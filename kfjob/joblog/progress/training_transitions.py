"""The state of training after one more line: the transitions of `Training`."""

from __future__ import annotations

import math

from msgspec.structs import replace

from kfjob.base.units import SECOND
from kfjob.joblog.progress.curve import Point, append_point, insert_point
from kfjob.joblog.progress.milestones import Rollback, Setback, SkippedStep, StepMetrics
from kfjob.joblog.progress.position import Position
from kfjob.joblog.progress.reading import Reading
from kfjob.joblog.progress.training import Training, first_known

MAX_EVALUATIONS = 256
"""Evaluation losses in memory."""
MAX_SETBACKS = 64
"""Setbacks in memory, so that another rank's line about the same step does not count again."""
SMOOTHING = 0.9
"""Weight of the past in the smoothed loss and in the smoothed time per step."""


def add_reading(training: Training, reading: Reading, *, pod: str, time: int | None, restarted: bool = False) -> Training:
    """Return the state after one more progress line. `restarted`: the program began again since the line before."""
    training = training if reading.evaluation_loss is None else _add_evaluation(training, reading, pod, time)
    if reading.is_evaluation:
        return training
    if reading.late and training.step is not None and (reading.step is None or reading.step < training.step):
        return _add_late_point(training, reading, time)
    return _add_step(training, reading, pod=pod, time=time, restarted=restarted)


def _add_step(training: Training, reading: Reading, *, pod: str, time: int | None, restarted: bool) -> Training:
    """Return the state after a line of a step, or of values of the same step."""
    position, went_back = training.position.advance(reading, restarted=restarted)
    before = _rewind(training, position.run_step) if went_back and position.run_step is not None else training
    if training.lines and (restarted or training.position.begins_again):
        before = _begin_round(before)
    loss, smoothed_loss, smoothed_count = _next_loss(before, reading)
    lines, run_step = before.lines + (not reading.extra), position.run_step
    lr, speed = first_known(reading.lr, before.lr), first_known(reading.speed, before.speed)
    point = None
    if reading.loss is not None:
        smoothed = smoothed_loss if math.isfinite(reading.loss) else None  # a gap in the smoothed curve, too
        point = Point(lines if run_step is None else run_step, reading.loss, time, smoothed, lr, speed)
    curve, curve_interval = before.curve, before.curve_interval
    if point is not None and (reading.extra or not lines % curve_interval):
        curve, curve_interval = append_point(curve, point, curve_interval, replaces=reading.extra)
    return replace(
        before,
        format=reading.format if (reading.conclusive and not reading.extra) or not before.format else before.format,
        template=before.template if reading.extra else reading.template,
        pod=pod,
        lines=lines,
        position=position,
        loss=loss,
        not_finite_since=_next_not_finite(before, reading, position),
        first_loss=first_known(before.first_loss, reading.loss),
        first_step=first_known(before.first_step, reading.step),
        first_run_step=first_known(before.first_run_step, run_step),
        step_interval=_next_interval(before, reading),
        smoothed_loss=smoothed_loss,
        smoothed_count=smoothed_count,
        lr=lr,
        speed=speed,
        unit=reading.unit or before.unit,
        tokens_per_second=first_known(reading.tokens_per_second, before.tokens_per_second),
        grad_norm=first_known(reading.grad_norm, before.grad_norm),
        first_time=first_known(before.first_time, time),
        last_time=first_known(time, before.last_time),
        step_time=_next_step_time(before, position, time),
        seconds_per_step=_next_pace(before, position, time),
        longest_pause=_next_longest_pause(before, time),
        setbacks=_next_setbacks(before, reading),
        curve=curve,
        curve_interval=curve_interval,
    )


def _add_evaluation(training: Training, reading: Reading, pod: str, time: int | None) -> Training:
    """Return the state with a point of the evaluation curve."""
    step = first_known(reading.evaluation_step, first_known(reading.step, training.run_step))
    if reading.evaluation_loss is None or (training.pod and training.pod != pod):
        return training
    if reading.loss is not None and reading.evaluation_loss == training.evaluation_loss:
        return training  # a progress bar repeats the newest evaluation in each step
    point = Point(first_known(step, training.lines) or 0, reading.evaluation_loss, time)
    kept = (
        training.evaluations[:-1]
        if training.evaluations and training.evaluations[-1].step == point.step
        else training.evaluations
    )
    return replace(training, evaluation_loss=reading.evaluation_loss, evaluations=(*kept, point)[-MAX_EVALUATIONS:])


def _add_late_point(training: Training, reading: Reading, time: int | None) -> Training:
    """Return the state with the loss of an earlier step, which its line gave only now."""
    if reading.loss is None:
        return training
    loss, smoothed_loss, smoothed_count = _next_loss(training, reading)
    step = training.lines if reading.step is None else training.position.base + reading.step
    after = replace(
        training,
        lines=training.lines + 1,
        loss=loss,
        first_loss=first_known(training.first_loss, reading.loss),
        smoothed_loss=smoothed_loss,
        smoothed_count=smoothed_count,
    )
    if after.lines % after.curve_interval:
        return after
    smoothed = smoothed_loss if math.isfinite(reading.loss) else None
    point = Point(step, reading.loss, time, smoothed, reading.lr, reading.speed)
    curve, interval = insert_point(after.curve, point, after.curve_interval)
    return replace(after, curve=curve, curve_interval=interval)


def add_metrics(training: Training, metrics: StepMetrics) -> Training:
    """Return the state with the second line of kfjob's trainer."""
    return replace(
        training,
        tokens_per_second=metrics.tokens_per_second,
        tokens_per_second_per_device=metrics.tokens_per_second_per_device,
        mfu=metrics.mfu,
        grad_norm=metrics.grad_norm,
        memory=metrics.memory,
    )


def add_setback(training: Training, setback: Setback) -> Training:
    """Return the state after a step that did not count; the same object if another rank has reported it."""
    key = (type(setback), setback.step)
    if key in training.setbacks:
        return training
    return replace(
        training,
        skipped=training.skipped + isinstance(setback, SkippedStep),
        rolled_back=training.rolled_back + isinstance(setback, Rollback),
        setbacks=(*training.setbacks, key)[-MAX_SETBACKS:],
    )


def _rewind(training: Training, step: int) -> Training:
    """Return the state before `step`, without the later points of the curve."""
    curve = tuple(point for point in training.curve if point.step < step)
    return replace(
        training,
        curve=curve,
        setbacks=(),
        seconds_per_step=None,
        last_time=None,
        step_time=None,
        position=Position(),
    )


def _begin_round(training: Training) -> Training:
    """Return the state without the speeds of the rounds before: the job may have other pods now, and the pause is no step."""
    return replace(
        training,
        speed=None,
        unit="",
        tokens_per_second=None,
        tokens_per_second_per_device=None,
        mfu=None,
        seconds_per_step=None,
        last_time=None,
        step_time=None,
    )


def _next_setbacks(before: Training, reading: Reading) -> tuple[tuple[type[Setback], int], ...]:
    """Return the setbacks that other ranks may still report: every rank does so before the next step ends.

    After a rollback the same steps come again, so nothing is remembered.
    """
    went_back = any(kind is Rollback and step > (reading.step or 0) for kind, step in before.setbacks)
    return () if went_back else before.setbacks


def _next_loss(before: Training, reading: Reading) -> tuple[float | None, float | None, int]:
    """Return the loss, the smoothed loss, and the number of readings in it."""
    if reading.loss is None:
        return before.loss, before.smoothed_loss, before.smoothed_count
    if not math.isfinite(reading.loss):
        return reading.loss, before.smoothed_loss, before.smoothed_count
    # starts as a plain mean, so that the first losses do not dominate the exponential one
    weight = min(SMOOTHING, before.smoothed_count / (before.smoothed_count + 1))
    smoothed = weight * (before.smoothed_loss or 0.0) + (1 - weight) * reading.loss
    return reading.loss, smoothed, before.smoothed_count + 1


def _next_not_finite(before: Training, reading: Reading, position: Position) -> int | None:
    if reading.loss is None or math.isfinite(reading.loss):
        return before.not_finite_since if reading.loss is None else None
    step = before.lines if position.run_step is None else position.run_step
    return first_known(before.not_finite_since, step)


def _next_interval(before: Training, reading: Reading) -> int | None:
    if reading.step is None or before.step is None or reading.step <= before.step:
        return before.step_interval
    distance = reading.step - before.step
    return distance if before.step_interval is None else min(distance, before.step_interval)


def _next_pace(before: Training, position: Position, time: int | None) -> float | None:
    """Return the smoothed seconds per step, or per epoch where lines count nothing else."""
    newest, last = position.count, before.position.count
    if time is None or before.step_time is None or newest is None or last is None:
        return before.seconds_per_step
    steps = newest - last
    if steps <= 0:
        return before.seconds_per_step
    pace = max(time - before.step_time, 0) / SECOND / steps
    if before.seconds_per_step is None:
        return pace
    weight: float = SMOOTHING**steps
    return weight * before.seconds_per_step + (1 - weight) * pace


def _next_step_time(before: Training, position: Position, time: int | None) -> int | None:
    """Return the time of the first line of the newest step: bars are drawn again at one step, and empty ones at any time."""
    if position.is_bar and position.run_step == 0:
        return before.step_time
    is_same = before.step_time is not None and position.count == before.position.count
    return before.step_time if is_same else first_known(time, before.step_time)


def _next_longest_pause(before: Training, time: int | None) -> float | None:
    if time is None or before.last_time is None:
        return before.longest_pause
    return max((time - before.last_time) / SECOND, before.longest_pause or 0.0)
