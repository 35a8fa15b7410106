"""This module reads progress bars of tqdm, with any unit, description and postfix, also where a line redraws them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from kfjob.observe.general.figures import Counter, Figures, parse_line, parse_message
from kfjob.observe.general.vocabulary import Phase, Role, find_phase, is_preparation, seconds_in, split_name

MARKER = "%|"
_COUNTS = re.compile(
    r"%\|[^|\r\n]{0,400}\|[ \t]*"
    r"(?P<step>\d[\d.,]*)(?P<scale>[kKMGT]?)/(?P<total>\d[\d.,]*)(?P<total_scale>[kKMGT]?) \[(?P<rest>[^\r\n]*)"
)
_RATE = re.compile(r"[^,\]]*,[ \t]*(?P<rate>\d[\d.,]*|\?)(?P<scale>[kKMGT]?)(?P<unit>[A-Za-z_ ]{0,24}/[A-Za-z_]{1,24})")
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_DATA_UNITS = frozenset(
    {"examples", "example", "b", "kb", "mb", "gb", "kib", "mib", "gib", "files", "file", "docs", "rows", "shards"}
)
_TRAINING_NAMES = frozenset({"step", "steps", "epoch", "epochs", "iter", "iteration", "iterations", "batch", "batches"})


def split_states(text: str) -> Iterator[str]:
    """Yield the states of a line that was redrawn: text between carriage returns, without the older states of the same bar."""
    if "\r" not in text:
        yield text
        return
    newest: list[str] = []
    for state in text.split("\r"):
        if not state.strip():
            continue
        if MARKER in state:
            newest = [*newest[-2:], state]
            continue
        yield from newest
        newest = []
        yield state
    yield from newest


def parse_bar(text: str) -> Figures | None:
    """Return the figures of the bar in one state of a line; None if it has no bar."""
    place = text.rfind(MARKER)
    match = _COUNTS.match(text, place) if place >= 0 else None
    if match is None:
        return None
    start = place
    while start and (text[start - 1].isdigit() or text[start - 1] == "."):
        start -= 1
    return _read_parts(text[:start], match)


def _read_parts(description: str, match: re.Match[str]) -> Figures:
    head = parse_line(description.rstrip(" :"))
    words = tuple(word.lower() for word in split_name(description[-120:]) if not word.isdigit())
    rest = match["rest"]
    postfix = parse_message(_find_values(rest))
    phase = Phase.EVALUATION if find_phase(words) is Phase.EVALUATION else head.phase
    speed, unit = _read_rate(rest)
    counter = _counter(match, head)
    loss = postfix if postfix.loss is not None else head
    figures = replace(
        postfix,
        phase=phase,
        counters=(counter, *(item for item in head.counters if item.role is Role.EPOCH)),
        loss=loss.loss,
        loss_name=loss.loss_name,
        loss_rank=loss.loss_rank,
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


def _find_values(rest: str) -> str:
    """Return the values after the times and the rate, and those after the bracket."""
    inside, _, after = rest.partition("]")
    values = inside.partition(", ")[2]
    if _RATE.match(inside):
        values = values.partition(",")[2]
    return f"{values}, {after}" if after.strip() else values


def _counter(match: re.Match[str], head: Figures) -> Counter:
    step = float(match["step"].replace(",", "")) * _SCALES[match["scale"]]
    total = float(match["total"].replace(",", "")) * _SCALES[match["total_scale"]]
    named = next((item for item in head.counters if item.role is Role.STEP and item.total), None)
    return Counter(Role.STEP, 1, f"bar {named.name}" if named else "bar", step, total)


def _read_rate(rest: str) -> tuple[float | None, str]:
    match = _RATE.match(rest)
    if match is None or match["rate"] == "?":
        return None, ""
    rate, unit = float(match["rate"].replace(",", "")) * _SCALES[match["scale"]], match["unit"].strip()
    noun, _, divisor = unit.partition("/")
    if seconds_in(noun) and not seconds_in(divisor):
        return (1 / (rate * seconds_in(noun)) if rate else None), f"{divisor}/s"
    return rate, unit


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
