"""A cheap first test: lines that differ only in their numbers hold figures, or do not, alike.

The test parses one line of each layout, and answers for the others from a table. A program that prints millions of lines of a
few layouts costs one look-up a line. A line that may belong to a curve always passes: the answer depends on its layout alone.
"""

from __future__ import annotations

import re
from functools import lru_cache

from kfjob.observe.general import tables
from kfjob.observe.general.figures import parse_message
from kfjob.observe.general.messages import find_message
from kfjob.observe.lines import clean_line
from kfjob.observe.numbers import mask_digits
from kfjob.observe.progress_bars import MARKER
from kfjob.observe.vocabulary import ANNOUNCEMENT, Phase, find_phase, is_preparation, split_name

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


def may_hold_progress(line: bytes) -> bool:
    """Return whether the general reader may need the line."""
    if len(line) > MAX_LENGTH or _BAR in line or b"\r" in line:
        return True
    return _layout_matters(mask_digits(line))


@lru_cache(maxsize=TABLE_SIZE)
def _layout_matters(masked: bytes) -> bool:
    """Return the answer for a line whose digits are ones; numbers of equal length need no further look."""
    return _skeleton_matters(make_skeleton(masked))


def make_skeleton(line: bytes) -> str:
    """Return the line with the same number in place of each number, and of each hexadecimal identifier."""
    digits = _IDENTIFIER.sub("x1x", mask_digits(line).decode(errors="replace"))
    return _WHOLE.sub("1", _FRACTION.sub(".1", digits))


@lru_cache(maxsize=TABLE_SIZE)
def _skeleton_matters(skeleton: str) -> bool:
    skeleton, _ = clean_line(skeleton)
    if ANNOUNCEMENT.search(skeleton) or _CELL.match(skeleton):
        return True
    message = find_message(skeleton)
    if (
        tables.split_cells(message.text)
        or tables.parse_header(message.text)
        or find_phase(split_name(message.text)) is Phase.EVALUATION
    ):
        return True
    figures = parse_message(message.text, rank=message.rank, phase=message.phase)
    if figures.is_empty:
        return False
    return figures.loss is not None or not is_preparation(figures.words)
