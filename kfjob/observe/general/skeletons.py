"""A cheap first test: lines that differ only in their numbers hold figures, or do not, alike.

The test parses one line of each layout, and answers for the others from a table. A program that prints millions of lines of a
few layouts costs one look-up a line. A line that may belong to a curve always passes: the answer depends on its layout alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kfjob.observe.figures import tables
from kfjob.observe.figures.bars import MARKER
from kfjob.observe.figures.line import parse_message
from kfjob.observe.figures.messages import find_message
from kfjob.observe.lines import clean_line
from kfjob.observe.meanings import Phase, find_phase, is_preparation, split_name
from kfjob.observe.numbers import mask_digits
from kfjob.observe.vocabulary import ANNOUNCEMENT

MAX_LENGTH = 600
"""Bytes of a line that the pre-filter reads; a longer line always passes."""
_BAR = MARKER.encode()
TABLE_SIZE = 8192
"""Layouts whose answer is remembered."""
_IDENTIFIER = re.compile(r"(?<![\w.])(?:[1a-f]{8}-(?:[1a-f]{4}-){3}[1a-f]{12}|(?=1{0,64}+(?:[a-df]|e[1a-f]))[1a-f]{8,64}+)\b")
"""It matches a UUID, or eight or more hexadecimal digits with a letter; digits are ones already."""
_FRACTION = re.compile(r"(?<=1)\.1++")
_WHOLE = re.compile(r"(?<![1:/,.IWEFCV-])1++(?![:/,-])")

_CELL = re.compile(r"[ \t]*[|│┃]")
"""It matches the start of cells `| name | value |`, which the reader parses in another way."""


class Layout(NamedTuple):
    """What lines that differ only in their numbers have in common."""

    matters: bool  # the general reader may need them
    is_header: bool = False  # they name the columns of a table


_UNREAD = Layout(matters=True)


def may_hold_progress(line: bytes) -> bool:
    """Return whether the general reader may need the line."""
    return read_layout(line).matters


def read_layout(line: bytes) -> Layout:
    """Return what the layout of the line says; numbers of equal length need no further look."""
    if len(line) > MAX_LENGTH:
        return _UNREAD
    return _read_layout(mask_digits(line))


@lru_cache(maxsize=TABLE_SIZE)
def _read_layout(masked: bytes) -> Layout:
    """Return the layout of a line whose digits are ones."""
    if _BAR in masked or b"\r" in masked:
        message = find_message(clean_line(masked.decode(errors="replace"))[0])
        return Layout(matters=True, is_header=tables.parse_header(message.text) is not None)
    return _read_skeleton(make_skeleton(masked))


def make_skeleton(line: bytes) -> str:
    """Return the line with the same number in place of each number, and of each hexadecimal identifier."""
    digits = _IDENTIFIER.sub("x1x", mask_digits(line).decode(errors="replace"))
    return _WHOLE.sub("1", _FRACTION.sub(".1", digits))


@lru_cache(maxsize=TABLE_SIZE)
def _read_skeleton(skeleton: str) -> Layout:
    skeleton, _ = clean_line(skeleton)
    message = find_message(skeleton)
    if tables.parse_header(message.text):
        return Layout(matters=True, is_header=True)
    if ANNOUNCEMENT.search(skeleton) or _CELL.match(skeleton) or tables.split_cells(message.text):
        return Layout(matters=True)
    if find_phase(split_name(message.text)) is Phase.EVALUATION:
        return Layout(matters=True)
    figures = parse_message(message.text, rank=message.rank, phase=message.phase)
    return Layout(matters=not figures.is_empty and (figures.loss is not None or not is_preparation(figures.words)))
