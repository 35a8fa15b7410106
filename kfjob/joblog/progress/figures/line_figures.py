"""The figures in one line, in any layout: counters, loss, learning rate and speed.

A figure is a number with a name before it (`loss: 2.3`, `loss=2.3`, `loss 2.3`, `| loss 2.3 |`, `'loss': 2.3`), a number with
a unit after it (`101.5 samples/s`), or a counter (`[10/5005]`, `[1][10/7330]`, `[1, 100]`, `10/100`).
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.lines.line_text import to_count
from kfjob.joblog.lines.meanings import (
    Meaning,
    Phase,
    Quantity,
    find_meaning,
    find_phase,
    is_metric,
    is_other_rate,
    is_preparation,
    is_reward,
    may_count,
    parse_unit,
    seconds_in,
    split_name,
)
from kfjob.joblog.lines.prefixes import Message, find_message
from kfjob.joblog.lines.vocabulary import (
    ANNOUNCEMENT,
    CLEAR_COUNT,
    COUNT_UNITS,
    ERROR_METRICS,
    LOSS_PART,
    METRICS,
    NETWORKS,
    SPARE_COUNT,
    SUM_OF_LOSSES,
    TIMES,
    TOTAL_WORDS,
    TRAINING_WORDS,
    WEAK_COUNT,
)
from kfjob.joblog.progress.figures import tables
from kfjob.joblog.progress.figures.line_shape import MAX_CACHED_LENGTH, LineShape, find_shape, parse_shape
from kfjob.joblog.progress.figures.tokens import Number, fold_width, hide_numbers

MAX_OTHER_LOSSES = 4
"""Losses of a line that the general reader keeps besides the first one."""
UNKNOWN_PRIORITY = 99
"""A value has this priority until a name in the line gives it."""
DERIVED_SPEED = 50
"""A speed from the time of a step has this priority, or a higher number."""
UNNAMED = "[]"
"""Name of a counter without a name, such as `[10/100]`."""
_MAX_NAME = 80
"""Characters before a number in which its name is searched."""
_NAME_BEFORE = re.compile(r"(?<![\w/.@-])([^\W\d][\w/.@-]*+)[\s\"'|:=>(\[*`]*+$")


class Counter(Struct, frozen=True):
    """A number that may count steps or epochs."""

    quantity: Quantity
    priority: int
    name: str
    value: float
    total: float | None = None

    @property
    def has_name(self) -> bool:
        """Whether the line names the counter."""
        return not self.name.startswith("[")


class Figures(Struct, frozen=True, kw_only=True):
    """The figures in one line, or in several lines of one step."""

    phase: Phase = Phase.NONE
    counters: tuple[Counter, ...] = ()
    percent: float | None = None
    loss: float | None = None
    loss_name: str = ""
    loss_priority: int = UNKNOWN_PRIORITY
    other_losses: tuple[tuple[str, float], ...] = ()
    """Losses with names as good as the first one, which may be constant."""
    evaluation_loss: float | None = None
    speed: float | None = None
    speed_priority: int = UNKNOWN_PRIORITY
    unit: str = ""  # of the speed; in parentheses its name, where the line gives no unit
    lr: float | None = None
    lr_priority: int = UNKNOWN_PRIORITY
    grad_norm: float | None = None
    total: float | None = None  # steps, named on their own: `total=1000`
    epochs: float | None = None
    metric: float | None = None  # another figure of the model, such as its accuracy
    has_reward: bool = False
    rank: int | None = None
    words: tuple[str, ...] = ()  # words of the line that name no figure
    is_bar: bool = False
    is_epoch_bar: bool = False  # the bar counts epochs, or steps and is named after its epoch

    @property
    def is_empty(self) -> bool:
        """Whether the line has neither a counter nor a value of training."""
        return (
            not self.counters and self.loss is None and self.evaluation_loss is None and self.speed is None and self.lr is None
        )

    def counts(self, quantity: Quantity) -> bool:
        """Whether the line counts steps, or epochs."""
        return any(counter.quantity is quantity for counter in self.counters)


def parse_line(text: str) -> Figures:
    """Return the figures in one line without colours."""
    message = find_message(text)
    return parse_message(message.text, rank=message.rank, phase=message.phase)


class NamedFigure(NamedTuple):
    """A value with its name."""

    words: tuple[str, ...]
    value: float
    whole: bool
    total: float | None
    unit: str
    place: int  # of the value in the line


def parse_message(text: str, *, rank: int | None = None, phase: Phase = Phase.NONE) -> Figures:
    """Return the figures in a line without prefixes."""
    text = fold_width(text)
    if len(text) <= MAX_CACHED_LENGTH:
        with suppress(OverflowError):  # a number that is too large is none
            return _read_figures(find_shape(hide_numbers(text)), text, rank, phase)
    return _read_figures(parse_shape(text), text, rank, phase)


def _read_figures(shape: LineShape, text: str, rank: int | None, phase: Phase) -> Figures:
    """Return the figures of a line with this shape."""
    phase = phase or shape.phase
    builder = _Builder(phase, text)
    for words, number, whole, total, unit, _ in shape.named:
        builder.add(NamedFigure(words, number.read(text), whole, total and total.read(text), unit, number.start))
    builder.add_slots(_read_pairs(shape.slots, text))
    builder.drop_letter()
    builder.add_spare(_read_pairs(shape.spare, text))
    if rank is None and shape.leading_number is not None and builder.has_step_name:
        rank = to_count(shape.leading_number.read(text))
    percent = shape.percent and shape.percent.read(text)
    figures = Figures(phase=phase, counters=tuple(builder.counters), percent=percent, words=shape.words, rank=rank)
    return replace(figures, **(builder.values if rank is None else builder.values | {"rank": rank}))


def _read_pairs(pairs: tuple[tuple[Number, Number | None], ...], text: str) -> list[tuple[float, float | None]]:
    return [(number.read(text), total and total.read(text)) for number, total in pairs]


def _find_figure_meaning(figure: NamedFigure) -> Meaning | None:
    """Return what the number is, from its name and its unit."""
    meaning = find_meaning(figure.words) if figure.words else None
    if meaning is None and figure.unit in COUNT_UNITS and figure.total is not None:
        return find_meaning((figure.unit,))
    if figure.unit and not (meaning and meaning.quantity is Quantity.LOSS):
        return parse_unit(figure.unit) or (None if is_other_rate(figure.unit) else meaning)
    return meaning


def name_without_unit(before: str) -> str:
    """Return the name at the end of the text before a speed, as `(perf/sps)`: it stands for a unit that is not known."""
    match = _NAME_BEFORE.search(before[-_MAX_NAME:])
    return f"({match[1]})" if match else ""


class _Builder:
    """Collects the figures of one line: of two names for the same figure the better one wins."""

    def __init__(self, phase: Phase, text: str) -> None:
        self.phase = phase
        self._text = text
        self.values: dict[str, Any] = {}
        self.counters: list[Counter] = []
        self._priorities: dict[str, int] = {}
        self._follows_time = False  # the figure before is a time
        self._spare: list[Counter] = []  # whole numbers with an unknown name

    @property
    def has_step_name(self) -> bool:
        """Whether a clear name counts steps."""
        return any(counter.quantity is Quantity.STEP and counter.priority < CLEAR_COUNT for counter in self.counters)

    @property
    def _shows_training(self) -> bool:
        """Return whether the line counts episodes, or batches within epochs: then it is one of training."""
        if any(word.startswith("episode") for counter in self.counters for word in counter.name.split()):
            return True
        return len({counter.quantity for counter in self.counters if counter.total}) > 1

    def add(self, figure: NamedFigure) -> None:
        """Add a number with a name or a unit."""
        is_sum = len(figure.words) == 1 and figure.words[0] in TOTAL_WORDS and not figure.whole
        meaning = self._find_sum(figure) if is_sum else _find_figure_meaning(figure)
        self._follows_time = not TIMES.isdisjoint(figure.words) or (figure.unit != "" and seconds_in(figure.unit) > 0)
        if meaning is None:
            self._add_unknown(figure)
        elif meaning.quantity is Quantity.LOSS:
            self._add_loss(figure, meaning)
        elif meaning.quantity in {Quantity.STEP, Quantity.EPOCH}:
            whole = figure.whole or meaning.quantity is Quantity.EPOCH or figure.value.is_integer()
            if figure.unit in {"", "it", "its"} and whole and figure.value >= 0:
                self._add_counter(meaning.quantity, meaning.priority, figure)
        elif meaning.quantity in {Quantity.SPEED, Quantity.SECONDS}:
            self._add_speed(figure, meaning)
        elif meaning.quantity in {Quantity.LR, Quantity.GRAD_NORM}:
            if not figure.unit and math.isfinite(figure.value) and not self._is_evaluation(meaning):
                self._add_by_priority(str(meaning.quantity), meaning.priority, figure.value)
        elif figure.whole and not figure.unit and figure.total is None:
            if meaning.quantity is Quantity.TOTAL:
                self._add_spare_name(figure)  # unless it grows, it is the total
            value = to_count(figure.value) if meaning.quantity is Quantity.RANK else figure.value
            self.values.setdefault(str(meaning.quantity), value)

    def _find_sum(self, figure: NamedFigure) -> Meaning | None:
        """Return the meaning of `total=2.31`: it is the loss next to parts of one, or the sum of the times before it."""
        if self._follows_time:
            return None
        if "loss" in self._priorities:
            return Meaning(Quantity.LOSS, SUM_OF_LOSSES)
        return Meaning(Quantity.LOSS, LOSS_PART) if figure.words == ("total",) else None

    def _add_unknown(self, figure: NamedFigure) -> None:
        if figure.whole and not figure.unit and figure.words and may_count(figure.words):
            self._add_spare_name(figure)
        if figure.words[-1:] and figure.words[-1] in TRAINING_WORDS and figure.whole and not figure.unit:
            self._add_counter(Quantity.EPOCH, WEAK_COUNT, figure)  # `Train: 3 [10/100]`
        elif (self._is_metric(figure) or (self._shows_training and not figure.whole)) and not seconds_in(figure.unit):
            self.values.setdefault("metric", figure.value)
            if find_phase(figure.words) is Phase.TRAINING:
                self.values["phase"] = self.phase or Phase.TRAINING  # `train_perplexity=812.5`
            if is_reward(figure.words):
                self.values["has_reward"] = True

    def _is_metric(self, figure: NamedFigure) -> bool:
        """Return whether the name is that of a figure of a model; next to `rk4 step` an error is that of a solver."""
        is_other = any(item.quantity is Quantity.STEP and item.priority and " " in item.name for item in self.counters)
        return is_metric(figure.words) and not (is_other and METRICS.intersection(figure.words) <= ERROR_METRICS)

    def _add_spare_name(self, figure: NamedFigure) -> None:
        self._spare.append(Counter(Quantity.STEP, SPARE_COUNT, " ".join(figure.words), figure.value, figure.total))

    def _add_counter(self, quantity: Quantity, priority: int, figure: NamedFigure) -> None:
        if math.isfinite(figure.value):
            is_first = figure.total is not None and all(counter.quantity is Quantity.EPOCH for counter in self.counters)
            if is_first and quantity is Quantity.STEP:  # `Episode 3/500 | Steps: 251`, `Epoch 1.01, i = 51 / 4300`
                priority = min(priority, CLEAR_COUNT - 1)
            self.counters.append(Counter(quantity, priority, " ".join(figure.words), figure.value, figure.total))

    def _add_loss(self, figure: NamedFigure, meaning: Meaning) -> None:
        if figure.unit or (figure.total is not None and figure.whole):
            return
        if self._is_evaluation(meaning):
            if meaning.priority < self._priorities.get("evaluation_loss", UNKNOWN_PRIORITY):
                self._priorities["evaluation_loss"] = meaning.priority
                self.values["evaluation_loss"] = figure.value
        elif self._add_by_priority("loss", meaning.priority, figure.value):
            self.values |= {"loss_name": " ".join(figure.words), "other_losses": ()}
        elif meaning.priority == self._priorities["loss"]:
            others = self.values["other_losses"]
            self.values["other_losses"] = (*others, (" ".join(figure.words), figure.value))[:MAX_OTHER_LOSSES]

    def _add_speed(self, figure: NamedFigure, meaning: Meaning) -> None:
        if self._is_evaluation(meaning) or not math.isfinite(figure.value):
            return
        unit = meaning.unit or (figure.unit if "/" in figure.unit else "")
        if meaning.quantity is Quantity.SPEED and self._add_by_priority("speed", meaning.priority, figure.value):
            self.values["unit"] = unit or name_without_unit(self._text[: figure.place])
        elif meaning.quantity is Quantity.SECONDS and figure.value > 0:
            seconds = figure.value * (seconds_in(figure.unit) or seconds_in(meaning.unit))
            if seconds and self._add_by_priority("speed", DERIVED_SPEED + meaning.priority, 1 / seconds):
                self.values["unit"] = "it/s"

    def _add_by_priority(self, name: str, priority: int, value: float) -> bool:
        """Set the value unless an earlier name was as good; return whether it was set."""
        if priority >= self._priorities.get(name, UNKNOWN_PRIORITY):
            return False
        self._priorities[name] = priority
        self.values[name] = value
        if name != "grad_norm":
            self.values[f"{name}_priority"] = priority
        return True

    def _is_evaluation(self, meaning: Meaning) -> bool:
        if meaning.phase is Phase.NONE:
            return self.phase is Phase.EVALUATION
        return meaning.phase is Phase.EVALUATION

    def add_slots(self, slots: list[tuple[float, float | None]]) -> None:
        """Add the counters without a name: the last one counts steps, the one before it epochs.

        Without any, an only counter with a total and an unclear name counts steps.
        """
        if (
            not slots
            and len(self.counters) == 1
            and self.counters[0].priority == WEAK_COUNT
            and self.counters[0].quantity is Quantity.EPOCH
        ):
            only = self.counters[0]
            if only.total:  # `Training [10/100]`
                self.counters = [replace(only, quantity=Quantity.STEP, priority=CLEAR_COUNT)]
        has_named = bool(self.counters)
        if slots[1:] and not has_named:
            self.counters.append(Counter(Quantity.EPOCH, CLEAR_COUNT, "[]", *slots[-2]))
        if slots and not self.has_step_name:
            name = "[][]" if slots[1:] else UNNAMED
            self.counters.append(Counter(Quantity.STEP, CLEAR_COUNT, name, *slots[-1]))

    def drop_letter(self) -> None:
        """Drop a loss whose name is one letter, unless the line has another loss or names its step: it may be anything."""
        if self.values.get("loss_name") in NETWORKS and not self.has_step_name and not self.values["other_losses"]:
            self.values = {name: value for name, value in self.values.items() if not name.startswith("loss")}
            del self._priorities["loss"]

    def add_spare(self, unnamed: list[tuple[float, float | None]]) -> None:
        """Add whole numbers beside a clear loss or a reward that may count its steps if nothing else does: totals first."""
        has_value = self._priorities.get("loss", UNKNOWN_PRIORITY) < SUM_OF_LOSSES or self.values.get("has_reward", False)
        steps = [item for item in self.counters if item.quantity is Quantity.STEP]
        if not has_value or any(item.total for item in steps):
            return
        places = (Counter(Quantity.STEP, SPARE_COUNT, f"[{place}]", *numbers) for place, numbers in enumerate(unnamed))
        spare = sorted([*self._spare, *places], key=lambda item: item.total is None)
        self.counters += [item for item in spare if item.total or not steps]  # `(70/409) | Step: 0k` counts thousands


_MAX_ANNOUNCEMENT = 400
"""Characters of a line in which the announcement of training is searched."""
_NUMBER = re.compile(r"\d|(?i:\bnan\b|\binf)")


class Content(NamedTuple):
    """The content of a line."""

    message: Message
    header: tables.TableHeader | None = None  # the line names the columns of a table
    figures: Figures = Figures()
    is_cell: bool = False  # `| name | value |`

    @property
    def names_evaluation(self) -> bool:
        """Whether the words of the line speak of evaluation, as its heading does."""
        return find_phase(split_name(self.message.text)) is Phase.EVALUATION

    @property
    def is_preparation(self) -> bool:
        """Whether the line counts something other than training."""
        return self.figures.loss is None and is_preparation(self.figures.words)

    @property
    def matters(self) -> bool:
        """Whether the line may belong to a curve."""
        if self.header is not None or self.names_evaluation:
            return True
        return not self.figures.is_empty and not self.is_preparation


def read_content(text: str) -> Content:
    """Return the content of a line without colours."""
    message = find_message(text)
    header = tables.parse_header(message.text)
    if header or not _NUMBER.search(message.text):
        return Content(message, header or tables.parse_open_name(message.text))
    if cells := tables.split_cells(text) or tables.split_cells(message.text):
        return Content(message, figures=parse_message(": ".join(cells), rank=message.rank), is_cell=True)
    header = tables.parse_open_name(message.text)
    return Content(message, header, parse_message(message.text, rank=message.rank, phase=message.phase))


def announces_training(text: str) -> bool:
    """Return whether the line says that training begins."""
    return ANNOUNCEMENT.search(text[:_MAX_ANNOUNCEMENT]) is not None
