"""Training progress: the readings of progress lines combined into one state, with a loss curve of bounded length."""

from __future__ import annotations

import math
from typing import TypeVar

from msgspec import Struct, field

from kfjob.base.text import format_figure, plural
from kfjob.base.units import SECOND
from kfjob.joblog.lines.meanings import counts_steps
from kfjob.joblog.progress.curve import Point
from kfjob.joblog.progress.milestones import Setback
from kfjob.joblog.progress.position import Position
from kfjob.joblog.progress.reading import Line

_T = TypeVar("_T")

CONSTANT_READINGS = 20
"""Readings after which an unchanged loss counts as constant."""
MIN_SPAN = SECOND // 2
"""Time between the first and the newest line after which the times of lines give a pace."""


class Training(Struct, frozen=True, kw_only=True):
    """The state of training; None means that no line contained the value."""

    format: str = ""  # name of the format of the progress lines
    pod: str = ""  # the pod that prints them
    lines: int = 0  # progress lines that were read
    template: str = ""  # an example of the lines, if no known format fits
    position: Position = field(default_factory=Position)  # internal: step, epoch and totals
    evaluation_loss: float | None = None  # newest loss on validation data, as the lines have it
    evaluations: tuple[Point, ...] = ()  # the newest evaluation losses
    loss: float | None = None  # newest loss, as printed
    not_finite_since: int | None = None  # step of the first of the newest losses that are NaN or infinite
    not_finite_line: Line | None = None  # first line whose loss is NaN or infinite
    first_loss: float | None = None  # first loss
    first_step: int | None = None  # first step that a line has
    first_run_step: int | None = None  # first step, counted in the whole run
    step_interval: int | None = None  # smallest distance between the steps of two lines
    smoothed_loss: float | None = None  # exponential mean of the losses
    lr: float | None = None  # newest learning rate
    speed: float | None = None  # newest speed, as printed
    unit: str = ""  # unit of `speed`, such as `samples/s`
    tokens_per_second: float | None = None  # tokens per second of the whole job
    tokens_per_second_per_device: float | None = None  # tokens per second of one device
    mfu: float | None = None  # model FLOPs utilisation between 0 and 1
    grad_norm: float | None = None  # newest norm of the gradient
    memory: float | None = None  # GiB on the device that uses most
    skipped: int = 0  # steps whose gradient was not applied
    rolled_back: int = 0  # returns of the trainer to a checkpoint
    first_time: int | None = None  # time of the first progress line
    last_time: int | None = None  # time of the newest progress line
    step_time: int | None = None  # internal: time of the first line of the newest step
    seconds_per_step: float | None = None  # smoothed seconds per step; per epoch where lines count no steps
    longest_pause: float | None = None  # longest time between two lines in seconds
    curve: tuple[Point, ...] = ()  # points of the loss curve, at most 512
    curve_interval: int = 1  # internal: readings per point of the curve
    smoothed_count: int = 0  # internal: readings in `smoothed_loss`
    setbacks: tuple[tuple[type[Setback], int], ...] = ()  # internal: setbacks since training last went back

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
    def counts_in_epoch(self) -> bool:
        """Whether `step` may count within the epoch: the lines name an epoch, and do not show that steps go on."""
        return self.per_epoch or (self.epoch is not None and self.step is not None and not self.position.counts_on)

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
        return self._find_duration(self.run_step, first_known(total, steps))

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

    @property
    def has_constant_loss(self) -> bool:
        """Whether all of many readings have the same finite loss."""
        if self.loss is None or self.loss != self.first_loss or len(self.curve) < CONSTANT_READINGS:
            return False
        return all(point.loss == self.loss for point in self.curve)

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


def format_loss(loss: float) -> str:
    """Return `4.2104`; a huge or a small loss with four digits that count, `5.1e-10`."""
    return format_figure(loss, fixed=True)


def describe_bad_loss(training: Training) -> str:
    """Return that the loss is no number, and since which step, or that it never changes; "" for another loss."""
    if training.not_finite_since is None or training.loss is None:
        return "loss does not change" if training.has_constant_loss else ""
    return f"loss is {'NaN' if math.isnan(training.loss) else 'infinite'} since step {training.not_finite_since}"


def first_known(first: _T | None, second: _T | None) -> _T | None:
    """Return the first value, or else the second one."""
    return second if first is None else first
