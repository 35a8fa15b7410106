"""The shape of a line: what lines that differ only in their numbers have in common."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kfjob.joblog.lines.meanings import Phase, Quantity, find_meaning, find_phase, split_words
from kfjob.joblog.lines.vocabulary import EVALUATION_WORDS, PHASE_NAMES, TRAINING_WORDS
from kfjob.joblog.progress.figures.line_parser import LineParser, NamedNumber
from kfjob.joblog.progress.figures.tokens import Cursor, Number, split_tokens

MAX_CACHED_SHAPES, MAX_CACHED_LENGTH = 1024, 600
"""Shapes of lines that are remembered, and the characters of the longest one: a line of numbers alone takes 50 kB."""
_MAX_WORDS = 24
"""Words without values to keep of a line."""
_MAX_HEAD = 60
"""Characters of the head of a line, which names its phase."""
_HEAD_WORDS = 4
_TRAINING, _EVALUATION = "|".join(sorted(TRAINING_WORDS)), "|".join(sorted(EVALUATION_WORDS))
_EVALUATION_VALUE = re.compile(
    rf"(?i)\b(?:(?:{_TRAINING})['\"]?\s{{0,8}}[:=]\s{{0,8}}false|(?:{'|'.join(PHASE_NAMES)})['\"]?\s{{0,8}}[:=]\s{{0,8}}['\"]?(?:{_EVALUATION}))\b"
    rf"|[\[(](?:{_EVALUATION})[\])]$"
)
"""It matches a value that makes its line one of evaluation: `train: False`, `split=val`, or `[val]` at the end."""


class LineShape(NamedTuple):
    """What lines that differ only in their numbers have in common: the names of the numbers, and their places."""

    phase: Phase
    named: tuple[NamedNumber, ...]
    slots: tuple[tuple[Number, Number | None], ...]
    spare: tuple[tuple[Number, Number | None], ...]
    words: tuple[str, ...]
    percent: Number | None
    leading_number: Number | None
    """The number before a colon at the beginning: a counter, or the rank."""


def parse_shape(text: str) -> LineShape:
    """Return the shape of a line, which does not depend on the digits of a number, unless it is too large."""
    parser = LineParser(Cursor(split_tokens(text)))
    parser.run()
    words, phase = tuple(parser.free[:_MAX_WORDS]), _find_line_phase(parser, text)
    return LineShape(
        phase, tuple(parser.named), tuple(parser.slots), tuple(parser.spare), words, parser.percent, parser.leading_number
    )


find_shape = lru_cache(maxsize=MAX_CACHED_SHAPES)(parse_shape)


def _find_line_phase(parser: LineParser, text: str) -> Phase:
    """Return the phase that the words before the first value name."""
    if _EVALUATION_VALUE.search(text.rstrip()):
        return Phase.EVALUATION
    first = parser.named[0].words if parser.named else ()
    if phase := find_phase(parser.free[: _count_head_words(parser.named)]):
        return phase
    meaning = find_meaning(first) if first else None
    if first and (meaning is None or meaning.quantity is not Quantity.LOSS) and (phase := find_phase(first)):
        is_mixed = any(find_phase(item.words) is Phase.TRAINING for item in parser.named)
        return Phase.NONE if is_mixed and phase is Phase.EVALUATION else phase
    head = split_words(text[:_MAX_HEAD].partition("{")[0].partition(":")[0].partition("=")[0])
    words = tuple(word for word in head if not word.isdigit())
    is_name = bool(first) and words[: len(first)] == first
    return Phase.NONE if is_name or words[:1] == ("loss",) else find_phase(words[:_HEAD_WORDS])


def _count_head_words(named: list[NamedNumber]) -> int | None:
    """Return how many words stand before the first value that is no count; None: all of them."""
    counts = {Quantity.STEP, Quantity.EPOCH, Quantity.TOTAL, Quantity.RANK, Quantity.EPOCHS}
    for item in named:
        meaning = find_meaning(item.words) if item.words else None
        if meaning is not None and meaning.quantity not in counts:
            return item.free
    return None
