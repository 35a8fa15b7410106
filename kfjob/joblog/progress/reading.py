"""A reading: the values that one progress line gives, and the format by which they were read."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace


class FormatName(StrEnum):
    """How a line was read."""

    TRAINER = "kfjob"  # as a line of kfjob's trainer
    CUSTOM = "custom"  # by the job's own pattern
    BAR = "tqdm"  # as a bare progress bar
    GENERAL = "general"  # by the general reader


_FIELDS = ("loss", "speed", "lr", "grad_norm", "step", "epoch")
_read_fields = attrgetter(*_FIELDS)


class Reading(Struct, frozen=True, kw_only=True):
    """The values in one progress line; None if the line does not contain it."""

    format: str
    step: int | None = None  # optimiser steps; with `per_epoch` those of the current epoch
    total: int | None = None
    loss: float | None = None
    speed: float | None = None
    unit: str = ""  # unit of `speed`: samples/s, tokens/s/device, it/s …; `(perf/sps)` is its name, where no unit is known
    tokens_per_second: float | None = None
    lr: float | None = None
    epoch: float | None = None
    grad_norm: float | None = None
    line_time: int | None = None  # time in the line, taken as UTC, or the more precise one in the prefix of a log tool
    per_epoch: bool = False
    is_bar: bool = False  # the step is that of a progress bar: it counts what is done, from 0
    epochs: int | None = None  # of the whole run
    epoch_steps: int | None = None  # steps of one epoch
    evaluation_loss: float | None = None
    evaluation_step: int | None = None
    rank: int | None = None  # the rank that the line names
    template: str = ""  # an example of the lines that the general reader took
    late: bool = False  # an earlier line that was not read at once
    extra: bool = False  # values of a step that another line has counted
    conclusive: bool = True
    """False for a bare progress bar, which data preparation prints too: any other progress line takes precedence over it."""

    @property
    def is_empty_bar(self) -> bool:
        """Whether it is a bar before its first step: a program that resumes draws one, too, and says its step only later."""
        return self.is_bar and self.step == 0

    @property
    def is_evaluation(self) -> bool:
        """Whether the line has nothing but an evaluation loss."""
        return self.evaluation_loss is not None and not self.known_fields

    @property
    def known_fields(self) -> frozenset[str]:
        """The names of the values that the line has, apart from those of an evaluation."""
        return frozenset([name for name, value in zip(_FIELDS, _read_fields(self), strict=True) if value is not None])

    def without_fields(self, known: frozenset[str]) -> Reading | None:
        """Return the evaluation in the line, and the values that are not in `known`; None if there are none."""
        values: dict[str, object] = {name: None for name in ("loss", "lr", "grad_norm", "epoch") if name in known}
        if "step" in known:
            values |= {"step": None, "total": None}
        if "speed" in known:
            values |= {"speed": None, "unit": ""}
        extra = replace(self, extra=True, evaluation_step=self.step, **values)
        return extra if extra.known_fields or extra.evaluation_loss is not None else None


class Line(Struct, frozen=True, kw_only=True):
    """One state of a log line, without colours."""

    text: str
    number: int
    time: int | None = None


class LineReading(Struct, frozen=True, kw_only=True):
    """A reading with its line."""

    reading: Reading
    line: Line
