"""The step of the whole run, where a program counts steps from the beginning in each epoch."""

from __future__ import annotations

import math

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.progress.reading import FormatName, Reading

_EARLY = 0.2
"""Share of the printed steps that an epoch lacks where it ends early; fewer may be between the last line and the end."""


class Position(Struct, frozen=True, kw_only=True):
    """Where the run is: its step is `base` plus the printed step."""

    step: int | None = None
    epoch: float | None = None
    total: int | None = None
    epochs: int | None = None
    first_epoch: float | None = None
    base: int = 0  # steps of the epochs before
    first_step: int | None = None  # the lowest printed step
    interval: int = 0  # steps between the first two lines
    epoch_steps: int | None = None  # steps of one epoch, where known
    per_epoch: bool = False
    is_bar: bool = False  # the newest step is that of a progress bar
    counts_done: bool = False  # the step is the number of steps that are done, and not the index of one
    counts_on: bool = False  # the step goes on from epoch to epoch
    begins_again: bool = False  # the program was restarted and has drawn an empty bar; its next step says where it goes on

    @property
    def run_step(self) -> int | None:
        """The step of the run."""
        return None if self.step is None else self.base + self.step

    @property
    def run_total(self) -> int | None:
        """The steps of the run, None if unknown."""
        return self.find_run_total()

    @property
    def count(self) -> float | None:
        """The step of the run, or the epoch where lines count nothing else."""
        return self.epoch if self.step is None else self.run_step

    @property
    def epochs_done(self) -> float | None:
        """The epochs that have ended where lines count nothing else, and follow the end of an epoch; some count from 0."""
        if self.epoch is None:
            return None
        return self.epoch + (self.first_epoch == 0 and self.epoch.is_integer())

    def find_run_total(self, epochs: int | None = None) -> int | None:
        """Return the steps of the run; `epochs` are those of the run where the lines do not say it."""
        if not self.per_epoch:
            return self.total
        steps, epochs = self.steps_per_epoch, self.epochs or epochs
        return steps * epochs if steps and epochs else None

    @property
    def steps_per_epoch(self) -> int | None:
        """The steps of one epoch: fewer than the printed total where the epoch before ended earlier. None if unknown."""
        return min(filter(None, (self.total, self.epoch_steps)), default=None)

    @property
    def is_first_epoch(self) -> bool:
        """Whether the total may be that of this epoch: the line counts epochs, and no later one has begun."""
        is_single = self.epochs is not None or self.epoch is None or self.counts_on
        return not is_single and not self.per_epoch and self.total is not None

    def advance(self, reading: Reading, *, restarted: bool) -> tuple[Position, bool]:
        """Return the position after a line, and whether the run went back to an earlier step."""
        step, newest = reading.step, self.step
        restarted = restarted or self.begins_again
        if restarted and reading.is_empty_bar and newest is not None:
            return replace(self, begins_again=True), False
        total = self.total if reading.total is None else reading.total
        goes_on = step is not None and newest is not None and step >= newest and not self._has_new_epoch(reading)
        first_step = step if self.first_step is None else self.first_step if step is None else min(step, self.first_step)
        after = replace(
            self,
            step=newest if step is None else step,
            epoch=self.epoch if reading.epoch is None else reading.epoch,
            total=total,
            epochs=reading.epochs or self.epochs,
            first_epoch=reading.epoch if self.first_epoch is None else self.first_epoch,
            first_step=first_step,
            interval=self.interval or (step - newest if goes_on and step is not None and newest is not None else 0),
            epoch_steps=reading.epoch_steps or self.epoch_steps,
            per_epoch=self.per_epoch or reading.per_epoch or _counts_within_epoch(reading),
            is_bar=self.is_bar if step is None else reading.is_bar,
            counts_done=self.counts_done or reading.is_bar or (step is not None and step == total),
            counts_on=self.counts_on or _counts_on(self, reading),
            begins_again=self.begins_again and step is None,
        )
        if step is None or goes_on:
            return after, False
        if newest is None:
            return replace(after, base=_earlier_epochs(after)), False
        if self._begins_epoch(reading, restarted=restarted):
            length = reading.epoch_steps or self._epoch_length(after.first_step or 0)
            return replace(after, base=self.base + length, epoch_steps=length, per_epoch=True), False
        if step >= newest:
            return after, False
        base = self._find_base(reading) if self.per_epoch and restarted else self.base if self.per_epoch else 0
        return replace(after, base=base), base + step < self.base + newest

    def _find_base(self, reading: Reading) -> int:
        """Return the steps before the epoch in which the program goes on after a restart; 0 where its lines name none."""
        if reading.epoch is None or self.epoch is None or not self.steps_per_epoch:
            return 0
        return max(self.base + (math.floor(reading.epoch) - math.floor(self.epoch)) * self.steps_per_epoch, 0)

    def _has_new_epoch(self, reading: Reading) -> bool:
        """Return whether the line is of a later epoch, so that an equal step is a new one."""
        is_later = reading.epoch is not None and self.epoch is not None and math.floor(reading.epoch) > math.floor(self.epoch)
        return is_later and self.per_epoch and reading.step == self.step

    def _begins_epoch(self, reading: Reading, *, restarted: bool) -> bool:
        if restarted:
            return False
        if reading.epoch is not None and self.epoch is not None:
            return math.floor(reading.epoch) > math.floor(self.epoch)
        if reading.per_epoch:
            return True
        if reading.is_bar and self.step == self.total:
            return True  # a bar that was full is drawn again
        is_first = self.first_step is not None and reading.step is not None and reading.step <= self.first_step
        return reading.format != FormatName.TRAINER and is_first and self.interval > 0

    def _epoch_length(self, first_step: int) -> int:
        """Return the steps of the epoch that ends here; the first step of the next one says whether it counts from 0.

        A program with several ranks may print the steps of one process, and end the epoch earlier.
        """
        last = (self.step or 0) + (self.interval if first_step == 0 else 0)
        ends_early = self.total is not None and self.interval > 0 and not self.is_bar and not self.counts_on
        if self.total and not (ends_early and self.total - last >= max(2 * self.interval, self.total * _EARLY)):
            return self.total
        return last


def _counts_on(before: Position, reading: Reading) -> bool:
    """Return whether the line shows that its step is that of the run."""
    if reading.epoch is None:
        return False
    if reading.epoch != math.floor(reading.epoch):
        return True
    if before.epoch is None or before.step is None or reading.step is None:
        return False
    return reading.epoch > before.epoch and reading.step > before.step


def _counts_within_epoch(reading: Reading) -> bool:
    """Return whether `Epoch [2/5], Step [100/600]` cannot be a step of the whole run, or the line gives the steps per epoch."""
    if reading.epoch_steps and reading.total is None:
        return True
    if not (reading.epochs and reading.epochs > 1 and reading.total and reading.step is not None and reading.epoch is not None):
        return False
    share = reading.step / reading.total * reading.epochs
    return not reading.epoch - 1 <= share <= reading.epoch + 1 or reading.epoch <= 1


def _earlier_epochs(position: Position) -> int:
    """Return the steps before the first line, if the line has its epoch and the number of steps per epoch."""
    steps = position.total or position.epoch_steps
    if not position.per_epoch or not steps or position.epoch is None or position.epoch != math.floor(position.epoch):
        return 0
    counts_on = (position.step or 0) > steps  # the step is that of the run
    return 0 if counts_on else max(int(position.epoch) - 1, 0) * steps
