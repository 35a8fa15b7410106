"""How far training is: readings of progress lines, put together to one state with a loss curve of bounded length."""

from __future__ import annotations

import math
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kfjob.observe.milestones import Rollback, Setback, SkippedStep, StepMetrics
from kfjob.observe.progress import Reading
from kfjob.units import SECOND

_T = TypeVar("_T")

CURVE = 512
"""Points of the loss curve at most; when there are more, every second one goes."""
SETBACKS = 64
"""Steps that did not count of which is known that they are counted."""
SMOOTHING = 0.9
"""Share of the past in the smoothed loss and in the time a step takes."""


class Point(Struct, frozen=True):
    """One point of the loss curve."""

    step: int
    loss: float
    time: int | None
    smoothed: float | None = None  # the loss, over what came before
    lr: float | None = None
    speed: float | None = None  # as the line says it


class Training(Struct, frozen=True, kw_only=True):
    """Where training stands. None: no line has told."""

    format: str = ""
    pod: str = ""
    lines: int = 0
    step: int | None = None
    total: int | None = None
    per_epoch: bool = False  # `step` and `total` are of the current epoch
    epoch: float | None = None
    loss: float | None = None
    first_loss: float | None = None
    smoothed_loss: float | None = None
    lr: float | None = None
    speed: float | None = None
    unit: str = ""
    tokens_per_second: float | None = None
    tokens_per_second_per_device: float | None = None
    mfu: float | None = None  # share of the device's arithmetic
    grad_norm: float | None = None
    memory: float | None = None  # GiB, of the fullest device
    skipped: int = 0  # steps whose gradient was not applied
    rolled_back: int = 0  # times that the run went back to a checkpoint by itself
    first_time: int | None = None
    last_time: int | None = None
    seconds_per_step: float | None = None
    curve: tuple[Point, ...] = ()
    every: int = 1  # of the curve: each how-manyeth reading is kept
    averaged: int = 0  # readings in `smoothed_loss`
    setbacks: tuple[tuple[type[Setback], int], ...] = ()  # the newest, with their steps, since training last went back

    def eta(self) -> float | None:
        """Seconds from the newest line to the last step, None when total or pace is not known."""
        if self.per_epoch or self.step is None or not self.total or self.seconds_per_step is None:
            return None
        return max(self.total - self.step, 0) * self.seconds_per_step

    def at(self, now: int) -> float | None:
        """The ETA as seen at `now`."""
        eta = self.eta()
        if eta is None or self.last_time is None:
            return eta
        return max(eta - max(now - self.last_time, 0) / SECOND, 0.0)

    def read(self, reading: Reading, *, pod: str, time: int | None) -> Training:
        """The state after one more line."""
        fell_back = reading.step is not None and self.step is not None and reading.step < self.step and not reading.per_epoch
        before = self._from(reading.step) if fell_back and reading.step is not None else self
        loss, smoothed, averaged = _loss(before, reading)
        new = replace(
            before,
            format=reading.format if reading.conclusive or not before.format else before.format,
            pod=pod,
            lines=before.lines + 1,
            step=_newer(reading.step, before.step),
            total=_newer(reading.total, before.total),
            per_epoch=reading.per_epoch if reading.step is not None else before.per_epoch,
            epoch=_newer(reading.epoch, before.epoch),
            loss=loss,
            first_loss=_newer(before.first_loss, reading.loss),
            smoothed_loss=smoothed,
            averaged=averaged,
            lr=_newer(reading.lr, before.lr),
            speed=_newer(reading.speed, before.speed),
            unit=reading.unit or before.unit,
            tokens_per_second=_newer(reading.tokens_per_second, before.tokens_per_second),
            grad_norm=_newer(reading.grad_norm, before.grad_norm),
            first_time=_newer(before.first_time, time),
            last_time=_newer(time, before.last_time),
            seconds_per_step=_pace(before, reading, time),
            setbacks=_still_told(before, reading),
        )
        return _with_point(new, reading, time)

    def figures(self, figures: StepMetrics) -> Training:
        """The state with the second line of our trainer."""
        return replace(
            self,
            tokens_per_second=figures.tokens_per_second,
            tokens_per_second_per_device=figures.tokens_per_second_per_device,
            mfu=figures.mfu,
            grad_norm=figures.grad_norm,
            memory=figures.memory,
        )

    def set_back(self, setback: Setback) -> Training:
        """The state after a step that did not count; the same state if another rank has said so."""
        told = (type(setback), setback.step)
        if told in self.setbacks:
            return self
        return replace(
            self,
            skipped=self.skipped + isinstance(setback, SkippedStep),
            rolled_back=self.rolled_back + isinstance(setback, Rollback),
            setbacks=(*self.setbacks, told)[-SETBACKS:],
        )

    def _from(self, step: int) -> Training:
        """The state when training has gone back to `step`: what came after it is taken back."""
        kept = tuple(point for point in self.curve if point.step < step)
        return replace(self, curve=kept, setbacks=(), seconds_per_step=None, last_time=None, step=None)


def _still_told(before: Training, reading: Reading) -> tuple[tuple[type[Setback], int], ...]:
    """What other ranks may still tell: all ranks do before the next step ends, and after a roll-back steps come again."""
    went_back = any(kind is Rollback and step > (reading.step or 0) for kind, step in before.setbacks)
    return () if went_back else before.setbacks


def _loss(before: Training, reading: Reading) -> tuple[float | None, float | None, int]:
    if reading.loss is None:
        return before.loss, before.smoothed_loss, before.averaged
    if not math.isfinite(reading.loss):
        return reading.loss, before.smoothed_loss, before.averaged
    # a running mean at first, then an exponential one: the first losses do not weigh forever
    share = min(SMOOTHING, before.averaged / (before.averaged + 1))
    smoothed = share * (before.smoothed_loss or 0.0) + (1 - share) * reading.loss
    return reading.loss, smoothed, before.averaged + 1


def _pace(before: Training, reading: Reading, time: int | None) -> float | None:
    if None in (time, before.last_time, reading.step, before.step) or reading.per_epoch:
        return before.seconds_per_step
    steps = (reading.step or 0) - (before.step or 0)
    if steps <= 0:
        return before.seconds_per_step
    pace = max((time or 0) - (before.last_time or 0), 0) / SECOND / steps
    if before.seconds_per_step is None:
        return pace
    share = SMOOTHING**steps
    return share * before.seconds_per_step + (1 - share) * pace


def _with_point(new: Training, reading: Reading, time: int | None) -> Training:
    if reading.loss is None or new.lines % new.every:
        return new
    step = new.lines if reading.step is None or reading.per_epoch else reading.step
    curve = (*new.curve, Point(step, reading.loss, time, new.smoothed_loss, new.lr, new.speed))
    if len(curve) <= CURVE:
        return replace(new, curve=curve)
    return replace(new, curve=curve[::2], every=new.every * 2)


def _newer(first: _T | None, second: _T | None) -> _T | None:
    return second if first is None else first
