"""Progress bars of tqdm, with any unit, description and postfix, also where a line redraws them.

    Epoch 0:  10%|█         | 20/200 [00:10<01:30,  2.00it/s, loss=2.31]
    description  drawing      count    times         rate      postfix

This is the only grammar of bars; a bar without a total has no more than its percentage and drawing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto
from typing import NamedTuple

from msgspec.structs import replace

from kfjob.base.units import COUNT_SUFFIXES
from kfjob.joblog.lines.meanings import Phase, Quantity, find_phase, is_preparation, seconds_in, split_name
from kfjob.joblog.lines.prefixes import split_prefix
from kfjob.joblog.lines.vocabulary import COUNTER_WORDS, DATA_UNITS, EPOCH_WORDS
from kfjob.joblog.progress.figures.line_figures import Counter, Figures, parse_line, parse_message

MARKER = "%|"
FULL = "100"
"""The percentage of a bar that has reached its end."""
CURSOR_UP = "\x1b[A"
"""tqdm moves the cursor up after a bar below another one (`position`), such as evaluation within training."""
_NUMBER = r"\d[\d,]*+(?:\.\d*+)?"
_BAR = re.compile(
    r"%\|[^|\r\n]{0,400}\|"
    rf"(?:[ \t]*(?P<step>{_NUMBER})(?P<scale>[kKMGT]?)/(?P<total>{_NUMBER})(?P<total_scale>[kKMGT]?) \[(?P<rest>[^\r\n]*))?"
)
_RATE = re.compile(rf"[^,\]]*,[ \t]*(?P<rate>{_NUMBER}|\?)(?P<scale>[kKMGT]?)(?P<unit>[A-Za-z_ ]{{0,24}}/[A-Za-z_]{{1,24}})")
_MAX_DESCRIPTION = 120
"""Characters of a bar's description whose words say what it counts."""
_FIRST_STATES, _NEWEST_STATES = 4, 3
"""States to read of a redrawn bar. The first one often has no values yet."""


class BarRole(Enum):
    """What a bar counts."""

    TRAINING = auto()  # steps of training
    NAMELESS = auto()  # anything: it has neither a description nor a loss
    EPOCHS = auto()  # epochs, or the steps of one
    EVALUATION = auto()
    OTHER = auto()  # data, files, or a task without a known name


class Counts(NamedTuple):
    """The numbers of a bar."""

    step: float
    total: float
    rate: float | None  # in `unit`; None before the first step
    unit: str  # such as `it/s` or `s/it`; "" if the bar has no rate
    postfix: str  # the values after the rate
    after: str  # the text after the bar


class Bar(NamedTuple):
    """One state of a bar."""

    description: str  # the text before the percentage
    percent: str  # as printed
    counts: Counts | None

    @property
    def name(self) -> str:
        """The description without the prefix of a logger."""
        return split_prefix(self.description)[1].strip(" :")

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the description, also those of a prefix: `[Map]` says what the bar counts."""
        return tuple(word for word in split_name(self.description[-_MAX_DESCRIPTION:]) if not word.isdigit())


def find_bar(text: str) -> Bar | None:
    """Return the last bar in one state of a line; None if it has no bar."""
    place = text.rfind(MARKER)
    match = _BAR.match(text, place) if place >= 0 else None
    description = text[: max(place, 0)].rstrip("0123456789.")
    percent = text[len(description) : max(place, 0)]
    if match is None or not percent:
        return None
    return Bar(description, percent, _read_counts(match) if match["step"] else None)


def _read_counts(match: re.Match[str]) -> Counts:
    inside, _, after = match["rest"].partition("]")
    if "[" in inside:  # `avg. loss [81-100]: 2.3`
        rest, _, after = after.partition("]")
        inside = f"{inside}]{rest}"
    rate = _RATE.match(inside)
    postfix = inside.partition(", ")[2]
    return Counts(
        step=_scale(match["step"], match["scale"]),
        total=_scale(match["total"], match["total_scale"]),
        rate=_scale(rate["rate"], rate["scale"]) if rate and rate["rate"] != "?" else None,
        unit=rate["unit"].strip() if rate else "",
        postfix=postfix.partition(",")[2] if rate else postfix,
        after=after,
    )


def _scale(number: str, suffix: str) -> float:
    return float(number.replace(",", "")) * COUNT_SUFFIXES.get(suffix.lower(), 1)


def split_nested(state: str) -> tuple[str, str]:
    """Return the bar below another one in one state of a line, and the rest of the state."""
    nested, _, rest = state.rpartition(CURSOR_UP)
    return nested, rest


def split_states(text: str, *, is_first: bool = False) -> Iterator[str]:
    """Yield the states of a line that was redrawn: text between carriage returns, with only the newest states of the same bar.

    `is_first`: nothing is known of the run yet, so that its first loss is in the first states.
    """
    if "\r" not in text:
        yield text
        return
    remaining = _FIRST_STATES if is_first else 0
    newest: list[str] = []
    for state in text.split("\r"):
        if not state.strip():
            continue
        if MARKER not in state or remaining:
            remaining -= MARKER in state
            yield from newest
            newest = []
            yield state
            continue
        newest = [*newest[1 - _NEWEST_STATES :], state]
    yield from newest


def parse_bar(text: str) -> Figures | None:
    """Return the figures of the bar in one state of a line; None if it has no bar with counts."""
    bar = find_bar(text)
    return None if bar is None or bar.counts is None else read_bar(bar, bar.counts)


def read_bar(bar: Bar, counts: Counts) -> Figures:
    """Return the figures of a bar, from its counts, its description and its postfix."""
    head = parse_line(bar.description.rstrip(" :"))
    postfix = parse_message(f"{counts.postfix}, {counts.after}" if counts.after.strip() else counts.postfix)
    phase = Phase.EVALUATION if find_phase(bar.words) is Phase.EVALUATION else head.phase
    speed, unit = _find_speed(counts)
    loss = postfix if postfix.loss is not None else head
    figures = replace(
        postfix,
        phase=phase,
        counters=(_make_counter(counts, head), *(item for item in head.counters if item.quantity is Quantity.EPOCH)),
        loss=loss.loss,
        loss_name=loss.loss_name,
        loss_priority=loss.loss_priority,
        speed=speed,
        unit=unit,
        rank=head.rank,
        words=bar.words,
        is_bar=True,
    )
    if phase is Phase.EVALUATION:
        return replace(
            figures, loss=None, evaluation_loss=figures.loss if figures.loss is not None else postfix.evaluation_loss
        )
    return figures


def _make_counter(counts: Counts, head: Figures) -> Counter:
    named = next((item for item in head.counters if item.quantity is Quantity.STEP and item.total), None)
    return Counter(Quantity.STEP, 1, f"bar {named.name}" if named else "bar", counts.step, counts.total)


def _find_speed(counts: Counts) -> tuple[float | None, str]:
    """Return the speed of a bar, per second, and its unit."""
    if counts.rate is None:
        return None, ""
    noun, _, divisor = counts.unit.partition("/")
    if seconds_in(noun) and not seconds_in(divisor):
        return (1 / (counts.rate * seconds_in(noun)) if counts.rate else None), f"{divisor}/s"
    return counts.rate, counts.unit


def find_role(figures: Figures) -> BarRole:
    """Return what a bar counts; every reader of bars asks this function.

    A bar with a loss trains, unless its description names evaluation. Without a loss, its unit and the words of its description
    decide: a unit of data, a word of data preparation, or a name without a word for steps or training is other work. A bar
    without a description may be that of any loop. A bar named `epochs` counts them if another bar counts the steps.
    """
    names_epochs = all(word in EPOCH_WORDS for word in figures.words) and not figures.counts(Quantity.EPOCH)
    if figures.words and names_epochs and figures.phase is not Phase.EVALUATION:
        return BarRole.EPOCHS
    if figures.loss is None and (figures.unit.partition("/")[0].lower() in DATA_UNITS or names_other_work(figures.words)):
        return BarRole.OTHER
    if figures.phase is Phase.EVALUATION:
        return BarRole.EVALUATION
    has_name = figures.loss is not None or any(word.isalpha() for word in figures.words)
    return BarRole.TRAINING if has_name else BarRole.NAMELESS


def names_other_work(words: tuple[str, ...]) -> bool:
    """Return whether the description of a bar names something other than training."""
    is_unknown = bool(words) and COUNTER_WORDS.isdisjoint(words) and find_phase(words) is not Phase.TRAINING
    return is_unknown or is_preparation(words)


def counts_epochs_clearly(figures: Figures) -> bool:
    """Return whether a bar of epochs cannot be one of steps that is named after its epoch."""
    return any(word.endswith("s") for word in figures.words) or figures.unit.partition("/")[0].lower() in EPOCH_WORDS
