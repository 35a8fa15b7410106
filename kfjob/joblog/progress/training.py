"""Training progress: the readings of progress lines combined into one state, with a loss curve of bounded length."""

from __future__ import annotations

import math
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.base.text import format_figure, plural
from kfjob.base.units import SECOND
from kfjob.joblog.lines.meanings import counts_steps
from kfjob.joblog.progress.curve import Point, append_point, insert_point
from kfjob.joblog.progress.milestones import Rollback, Setback, SkippedStep, StepMetrics
from kfjob.joblog.progress.position import Position
from kfjob.joblog.progress.reading import Line, Reading

_T = TypeVar("_T")

MAX_EVALUATIONS = 256
"""Evaluation losses in memory."""
MAX_SETBACKS = 64
"""Setbacks in memory, so that another rank's line about the same step does not count again."""
MIN_SPAN = SECOND // 2
"""Time between the first and the newest line after which the times of lines give a pace."""
SMOOTHING = 0.9
"""Weight of the past in the smoothed loss and in the smoothed time per step."""


class Training(Struct, frozen=True, kw_only=True):
    """The state of training; None means that no line contained the value."""

    format: str = ""
    pod: str = ""
    lines: int = 0
    template: str = ""  # an example of the lines that the general reader took
    position: Position = field(default_factory=Position)
    evaluation_loss: float | None = None
    evaluations: tuple[Point, ...] = ()  # the newest evaluation losses
    loss: float | None = None
    not_finite_since: int | None = None  # step of the first of the newest losses that are NaN or infinite
    not_finite_line: Line | None = None  # the first of these lines
    first_loss: float | None = None
    first_step: int | None = None  # of the first line with a step
    first_run_step: int | None = None  # the same, as a step of the whole run
    step_interval: int | None = None  # smallest distance between the steps of two lines
    smoothed_loss: float | None = None
    lr: float | None = None
    speed: float | None = None
    unit: str = ""
    tokens_per_second: float | None = None
    tokens_per_second_per_device: float | None = None
    mfu: float | None = None  # between 0 and 1
    grad_norm: float | None = None
    memory: float | None = None  # GiB, on the device that uses most
    skipped: int = 0  # steps whose gradient was not applied
    rolled_back: int = 0  # returns of the trainer to a checkpoint
    first_time: int | None = None
    last_time: int | None = None
    step_time: int | None = None  # of the first line of the newest step
    seconds_per_step: float | None = None  # per epoch where lines count no steps
    longest_pause: float | None = None  # seconds between two lines
    curve: tuple[Point, ...] = ()
    curve_interval: int = 1  # readings per point of the curve
    smoothed_count: int = 0  # readings in `smoothed_loss`
    setbacks: tuple[tuple[type[Setback], int], ...] = ()  # newest setbacks with their steps, since training last went back

    def __repr__(self) -> str:
        """Return one line: the newest step and loss."""
        step = f" step {self.step}{f'/{self.total}' if self.total else ''}" if self.step is not None else ""
        loss = f", loss {format_loss(self.loss)}" if self.loss is not None else ""
        return f"<Training{step}{loss} ({plural(self.lines, 'line')} of {self.pod or 'no pod'})>"

    @property
    def step(self) -> int | None:
        """The newest step as printed; with `per_epoch` it counts within the epoch."""
        return self.position.step

    @property
    def total(self) -> int | None:
        """The total as printed beside the step."""
        return self.position.total

    @property
    def per_epoch(self) -> bool:
        """Whether `step` and `total` count within the epoch."""
        return self.position.per_epoch

    @property
    def epoch(self) -> float | None:
        """The newest epoch."""
        return self.position.epoch

    @property
    def epochs(self) -> int | None:
        """Epochs of the whole run."""
        return self.position.epochs

    @property
    def run_step(self) -> int | None:
        """The step of the whole run; `step` counts within the epoch where the program prints it so."""
        return self.position.run_step

    @property
    def steps(self) -> int | None:
        """Steps from the first line to the newest one, or from the start of training where the log begins with it."""
        step = self.run_step if self.per_epoch else self.step
        if step is None or self.first_step is None:
            return step
        if self.step_interval is not None and self.first_step > self.step_interval and self.first_run_step is not None:
            return step - self.first_run_step
        return step + (self.first_step == 0 and self.step_interval == 1 and not self.position.counts_done)

    @property
    def begins_late(self) -> bool:
        """Whether lines before the first one are missing: the log's beginning was rotated away, or training resumed there."""
        if self.per_epoch or self.first_step is None or self.step_interval is None:
            return False
        return self.first_step > self.step_interval

    def eta(self, steps: int | None = None, epochs: int | None = None) -> float | None:
        """Return the seconds from the newest line to the last step, None if the total or the pace is unknown.

        `steps` and `epochs`: those of the whole run, where the lines do not say it.
        """
        if self.step is None:
            return self._find_duration(self.position.epochs_done, self.epochs or epochs)
        total = None if self.position.is_first_epoch else self.position.find_run_total(epochs)
        return self._find_duration(self.run_step, _first_known(total, steps))

    @property
    def epoch_eta(self) -> float | None:
        """Seconds from the newest line to the end of the epoch; None if unknown."""
        if not (self.per_epoch or self.position.is_first_epoch):
            return None
        return self._find_duration(self.step, self.position.steps_per_epoch)

    @property
    def may_restart(self) -> bool:
        """Whether the total may be that of an epoch or of the run: a bar alone does not say it."""
        return self.position.is_bar and not self.per_epoch and self.epoch is None

    def _find_duration(self, step: float | None, total: int | None) -> float | None:
        """Return the seconds from one step, or epoch, to another by the times of the lines, or by the speed that they print.

        Lines that were written at once have nearly equal times, so that these say little at first.
        """
        span = (self.last_time or 0) - (self.first_time or 0)
        pace = self.seconds_per_step if span >= MIN_SPAN else None
        if pace is None and self.step is not None and self.speed and counts_steps(self.unit):
            pace = 1 / self.speed
        return None if step is None or not total or step > total or pace is None else (total - step) * pace

    @property
    def measured_speed(self) -> float | None:
        """Steps per second by the times of the lines; None if these say too little."""
        span = (self.last_time or 0) - (self.first_time or 0)
        has_pace = self.seconds_per_step and self.step is not None and span >= MIN_SPAN
        return 1 / self.seconds_per_step if self.seconds_per_step and has_pace else None

    def subtract_elapsed(self, eta: float | None, now: int | None) -> float | None:
        """Return the seconds that remain at `now`. Time beyond the longest pause between two lines brings no step."""
        if eta is None or self.last_time is None or now is None:
            return eta
        elapsed = min(max(now - self.last_time, 0) / SECOND, self.longest_pause or 0.0)
        return max(eta - elapsed, 0.0)

    def with_reading(self, reading: Reading, *, pod: str, time: int | None, restarted: bool = False) -> Training:
        """Return the state after one more progress line. `restarted`: the program began again since the line before."""
        training = self if reading.evaluation_loss is None else self._with_evaluation(reading, pod, time)
        if reading.is_evaluation:
            return training
        if reading.late and training.step is not None and (reading.step is None or reading.step < training.step):
            return training.with_late_point(reading, time)
        return training.with_step(reading, pod=pod, time=time, restarted=restarted)

    def with_step(self, reading: Reading, *, pod: str, time: int | None, restarted: bool) -> Training:
        """Return the state after a line of a step, or of values of the same step."""
        position, went_back = self.position.advance(reading, restarted=restarted)
        before = self._rewind(position.run_step) if went_back and position.run_step is not None else self
        if self.lines and (restarted or self.position.begins_again):
            before = _begin_round(before)
        loss, smoothed_loss, smoothed_count = _next_loss(before, reading)
        lines, run_step = before.lines + (not reading.extra), position.run_step
        lr, speed = _first_known(reading.lr, before.lr), _first_known(reading.speed, before.speed)
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
            first_loss=_first_known(before.first_loss, reading.loss),
            first_step=_first_known(before.first_step, reading.step),
            first_run_step=_first_known(before.first_run_step, run_step),
            step_interval=_next_interval(before, reading),
            smoothed_loss=smoothed_loss,
            smoothed_count=smoothed_count,
            lr=lr,
            speed=speed,
            unit=reading.unit or before.unit,
            tokens_per_second=_first_known(reading.tokens_per_second, before.tokens_per_second),
            grad_norm=_first_known(reading.grad_norm, before.grad_norm),
            first_time=_first_known(before.first_time, time),
            last_time=_first_known(time, before.last_time),
            step_time=_next_step_time(before, position, time),
            seconds_per_step=_next_pace(before, position, time),
            longest_pause=_next_longest_pause(before, time),
            setbacks=_next_setbacks(before, reading),
            curve=curve,
            curve_interval=curve_interval,
        )

    def _with_evaluation(self, reading: Reading, pod: str, time: int | None) -> Training:
        """Return the state with a point of the evaluation curve."""
        step = _first_known(reading.evaluation_step, _first_known(reading.step, self.run_step))
        if reading.evaluation_loss is None or (self.pod and self.pod != pod):
            return self
        if reading.loss is not None and reading.evaluation_loss == self.evaluation_loss:
            return self  # a progress bar repeats the newest evaluation in each step
        point = Point(_first_known(step, self.lines) or 0, reading.evaluation_loss, time)
        kept = self.evaluations[:-1] if self.evaluations and self.evaluations[-1].step == point.step else self.evaluations
        return replace(self, evaluation_loss=reading.evaluation_loss, evaluations=(*kept, point)[-MAX_EVALUATIONS:])

    def with_late_point(self, reading: Reading, time: int | None) -> Training:
        """Return the state with the loss of an earlier step, which its line gave only now."""
        if reading.loss is None:
            return self
        loss, smoothed_loss, smoothed_count = _next_loss(self, reading)
        step = self.lines if reading.step is None else self.position.base + reading.step
        after = replace(
            self,
            lines=self.lines + 1,
            loss=loss,
            first_loss=_first_known(self.first_loss, reading.loss),
            smoothed_loss=smoothed_loss,
            smoothed_count=smoothed_count,
        )
        if after.lines % after.curve_interval:
            return after
        smoothed = smoothed_loss if math.isfinite(reading.loss) else None
        point = Point(step, reading.loss, time, smoothed, reading.lr, reading.speed)
        curve, interval = insert_point(after.curve, point, after.curve_interval)
        return replace(after, curve=curve, curve_interval=interval)

    def with_metrics(self, metrics: StepMetrics) -> Training:
        """Return the state with the second line of kfjob's trainer."""
        return replace(
            self,
            tokens_per_second=metrics.tokens_per_second,
            tokens_per_second_per_device=metrics.tokens_per_second_per_device,
            mfu=metrics.mfu,
            grad_norm=metrics.grad_norm,
            memory=metrics.memory,
        )

    def with_setback(self, setback: Setback) -> Training:
        """Return the state after a step that did not count; the same object if another rank has reported it."""
        key = (type(setback), setback.step)
        if key in self.setbacks:
            return self
        return replace(
            self,
            skipped=self.skipped + isinstance(setback, SkippedStep),
            rolled_back=self.rolled_back + isinstance(setback, Rollback),
            setbacks=(*self.setbacks, key)[-MAX_SETBACKS:],
        )

    def _rewind(self, step: int) -> Training:
        """Return the state before `step`, without the later points of the curve."""
        curve = tuple(point for point in self.curve if point.step < step)
        return replace(
            self,
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


def format_loss(loss: float) -> str:
    """Return `4.2104`; a huge or a small loss with four digits that count, `5.1e-10`."""
    return format_figure(loss, fixed=True)


def describe_divergence(training: Training) -> str:
    """Return that the loss is no number, and since which step; "" for a loss that is one."""
    if training.not_finite_since is None or training.loss is None:
        return ""
    return f"loss is {'NaN' if math.isnan(training.loss) else 'infinite'} since step {training.not_finite_since}"


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
    return _first_known(before.not_finite_since, step)


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
    return before.step_time if is_same else _first_known(time, before.step_time)


def _next_longest_pause(before: Training, time: int | None) -> float | None:
    if time is None or before.last_time is None:
        return before.longest_pause
    return max((time - before.last_time) / SECOND, before.longest_pause or 0.0)


def _first_known(first: _T | None, second: _T | None) -> _T | None:
    return second if first is None else first
