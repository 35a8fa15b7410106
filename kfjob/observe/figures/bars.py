"""This module reads progress bars of tqdm, with any unit, description and postfix, also where a line redraws them."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kfjob.observe.figures.line import Counter, Figures, parse_line, parse_message
from kfjob.observe.meanings import Phase, Quantity, find_phase, is_preparation, seconds_in, split_name
from kfjob.observe.progress_bars import MARKER, Bar, find_bar

_DATA_UNITS = frozenset(
    {"examples", "example", "b", "kb", "mb", "gb", "kib", "mib", "gib", "files", "file", "docs", "rows", "shards"}
)
_TRAINING_NAMES = frozenset({"step", "steps", "epoch", "epochs", "iter", "iteration", "iterations", "batch", "batches"})

_FIRST_STATES, _NEWEST_STATES = 4, 3
"""States to read of a redrawn bar. The first one often has no values yet."""


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
    """Return the figures of the bar in one state of a line; None if it has no bar."""
    bar = find_bar(text)
    return None if bar is None else _read_parts(bar)


def _read_parts(bar: Bar) -> Figures:
    head = parse_line(bar.description.rstrip(" :"))
    words = tuple(word.lower() for word in split_name(bar.description[-120:]) if not word.isdigit())
    postfix = parse_message(f"{bar.postfix}, {bar.after}" if bar.after.strip() else bar.postfix)
    phase = Phase.EVALUATION if find_phase(words) is Phase.EVALUATION else head.phase
    speed, unit = _find_speed(bar)
    loss = postfix if postfix.loss is not None else head
    figures = replace(
        postfix,
        phase=phase,
        counters=(_make_counter(bar, head), *(item for item in head.counters if item.quantity is Quantity.EPOCH)),
        loss=loss.loss,
        loss_name=loss.loss_name,
        loss_priority=loss.loss_priority,
        speed=speed,
        unit=unit,
        rank=head.rank,
        words=words,
        is_bar=True,
    )
    if phase is Phase.EVALUATION:
        return replace(
            figures, loss=None, evaluation_loss=figures.loss if figures.loss is not None else postfix.evaluation_loss
        )
    return figures


def _make_counter(bar: Bar, head: Figures) -> Counter:
    named = next((item for item in head.counters if item.quantity is Quantity.STEP and item.total), None)
    return Counter(Quantity.STEP, 1, f"bar {named.name}" if named else "bar", bar.step, bar.total)


def _find_speed(bar: Bar) -> tuple[float | None, str]:
    """Return the speed of a bar, per second, and its unit."""
    if bar.rate is None:
        return None, ""
    noun, _, divisor = bar.unit.partition("/")
    if seconds_in(noun) and not seconds_in(divisor):
        return (1 / (bar.rate * seconds_in(noun)) if bar.rate else None), f"{divisor}/s"
    return bar.rate, bar.unit


def is_nameless(figures: Figures) -> bool:
    """Return whether the bar has no description and no loss, as any loop may print."""
    return figures.loss is None and not [word for word in figures.words if word.isalpha()]


def is_other_work(figures: Figures) -> bool:
    """Return whether the bar counts something other than training steps: data, files, or a task without a known name."""
    if figures.loss is not None:
        return False
    noun = figures.unit.partition("/")[0].lower()
    if noun in _DATA_UNITS or is_preparation(figures.words):
        return True
    words = set(figures.words)
    return bool(words) and not words & _TRAINING_NAMES and find_phase(figures.words) is not Phase.TRAINING
