"""The lines that may hold progress: the literals by which a search finds them, and a cheap test of their layouts.

Only the few literals of the search through whole logs are chosen by hand, for its speed. The others come from the vocabulary:
a name that the chosen ones do not find, in one of its forms, is a literal of another search. Whatever chooses lines for their
progress asks `is_candidate` or `read_layout`.

Lines that differ only in their numbers hold figures, or do not, alike. The test parses one line of each layout, and answers for
the others from a table: a program that prints millions of lines of a few layouts costs one look-up a line. A line that may
belong to a curve always passes: the answer depends on its layout alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ahocorasick_rs import AhoCorasick

from kfjob.joblog.lines.line_text import mask_digits
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.vocabulary import (
    EPOCHS,
    LEARNING_RATE,
    LOSS_PARTS,
    LOSSES,
    RATES,
    SHORT_RATE_UNITS,
    STEPS,
    TRANSLATIONS,
    WEAK_COUNT,
)
from kfjob.joblog.progress.figures.bars import MARKER
from kfjob.joblog.progress.figures.line_figures import announces_training, read_content

MAIN_MARKERS = (
    "loss", "Loss", "LOSS", "step", "Step", "STEP", "poch", "EPOC", "iter", "Iter", "pdate", "batch", "Batch", "it/s", "s/it",
    "/sec", "per_s", "per s", "es/s", "peed", "ghpu", "Cost", "piso", "earn", "rmse", "kimg", "raini",
)  # fmt: skip
"""A log with figures of training has lines with one of these, or with a name in `RARE_MARKERS`.

A search for at most 32 literals of at least four bytes reads 32 bytes at once. With up to 64 literals it takes 1.5 to 4
times as long, and with more of them 20 times.
"""
MORE_MARKERS = (
    "ITER", "%|█", "%|##", "%|  ", "ens/s", " lr ", " lr:", " lr-", " lr=", "/lr=", '"lr"', "'lr'", "_lr",
    " LR ", " LR:", " LR=", "/LR ", "ntropy", "Up. ", " fps", "VALI", "VAL ", "alid", "pass: ", "SPS:", "cost", "ound ",
    "otal", "etrics",
)  # fmt: skip
"""In a log with a line of figures, lines with these may hold figures of the same step.

One search finds them and `MAIN_MARKERS`, at most 64 literals together.
"""
FIRST_MARKERS = ("lr:", "lr=", "lr ")
"""A line with a figure of training may begin with one of these."""
_SEPARATORS = " :=\"'\t|(/]_"
"""What may follow a name."""
_STEM = 4
"""Letters of a name to search for: shorter ones are in many words."""


def _find_forms(name: str) -> tuple[str, ...]:
    """Return the name in each form of its letters, and with each character that joins its words."""
    joined = dict.fromkeys(name.replace(" ", joint) for joint in " _-")
    return tuple(dict.fromkeys(form for text in joined for form in (text, text.upper(), text.capitalize(), text.title())))


def _is_found(text: str, markers: Iterable[str]) -> bool:
    return any(marker in text for marker in markers)


_COUNTERS = (*(name for group in (*STEPS[:WEAK_COUNT], EPOCHS[0]) for name in group if len(name) >= _STEM), "round")
_LOSSES = (*(name for group in LOSSES for name in group), *sorted(LOSS_PARTS))
NAMES = (*_COUNTERS, *_LOSSES, *sorted(RATES), LEARNING_RATE)
"""Names of figures that a line alone may hold. Shorter counters need a figure beside them, and `MORE_MARKERS` find `lr`."""


def _mark_rare_names() -> tuple[str, ...]:
    """Return the names without a literal of the other searches before each separator, and those of other languages."""
    forms = dict.fromkeys(form for name in NAMES for form in _find_forms(name))
    rates = dict.fromkeys(form for unit in SHORT_RATE_UNITS for form in (unit, unit.capitalize(), unit.upper()))
    rare = [form for form in (*forms, *rates) if not _is_found(form, MAIN_MARKERS)]
    letters = tuple(f" {letter}{after}" for letter in "Ll" for after in "0123456789:= ")
    foreign = dict.fromkeys(form for word in TRANSLATIONS for form in (word, word.capitalize()))
    return (*(f"{form}{separator}" for form in rare for separator in _SEPARATORS), *letters, *foreign)


RARE_MARKERS = _mark_rare_names()
"""The names of figures that few programs print without one of `MAIN_MARKERS`, as in `[it 12] nll 2.93`.

The search for them takes some times as long, so it ends with the first figures that one of the other searches finds.
"""


MAX_LENGTH = 600
"""Bytes of a line that the pre-filter reads; a longer line always passes."""
_BAR = MARKER.encode()
TABLE_SIZE = 8192
"""Layouts whose answer is remembered."""
_IDENTIFIER = re.compile(r"(?<![\w.])(?:[1a-f]{8}-(?:[1a-f]{4}-){3}[1a-f]{12}|(?=1{0,64}+(?:[a-df]|e[1a-f]))[1a-f]{8,64}+)\b")
"""It matches a UUID, or eight or more hexadecimal digits with a letter; digits are ones already."""
_FRACTION = re.compile(r"(?<=1)\.1++")
_WHOLE = re.compile(r"(?<![1:/,.IWEFCV-])1++(?![:/,-])")


class LayoutContent(NamedTuple):
    """What lines that differ only in their numbers have in common."""

    matters: bool  # the general reader may need them
    is_header: bool = False  # they name the columns of a table


UNREAD = LayoutContent(matters=True)
"""The answer for a line that passes whatever it holds."""


def may_hold_progress(line: bytes) -> bool:
    """Return whether the general reader may need the line."""
    return read_layout(line).matters


@lru_cache(maxsize=TABLE_SIZE)
def read_masked(masked: bytes) -> LayoutContent:
    """Return the layout of a line whose digits are ones; numbers of equal length need no further look."""
    if _BAR in masked or b"\r" in masked:
        return UNREAD
    return _read_skeleton(make_skeleton(masked))


def make_skeleton(line: bytes) -> str:
    """Return the line with the same number in place of each number, and of each hexadecimal identifier."""
    digits = _IDENTIFIER.sub("x1x", mask_digits(line).decode(errors="replace"))
    return _WHOLE.sub("1", _FRACTION.sub(".1", digits))


@lru_cache(maxsize=TABLE_SIZE)
def _read_skeleton(skeleton: str) -> LayoutContent:
    text, _ = clean_line(skeleton)
    content = read_content(text)
    return LayoutContent(matters=content.matters or announces_training(text), is_header=content.header is not None)


_AUTOMATON = AhoCorasick([*MAIN_MARKERS, *MORE_MARKERS, *RARE_MARKERS])


def is_candidate(text: str) -> bool:
    """Return whether the line has a marker; rows of tables have none."""
    if "loss" in text or "Loss" in text:
        return True  # as nearly every line of progress
    return text.startswith(FIRST_MARKERS) or bool(_AUTOMATON.find_matches_as_indexes(text))


def read_layout(line: bytes) -> LayoutContent:
    """Return what the layout of the line says."""
    return UNREAD if len(line) > MAX_LENGTH else read_masked(mask_digits(line.rstrip(b"\r")))
