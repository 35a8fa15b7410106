"""A cheap first test: lines that differ only in their numbers hold figures, or do not, alike.

The test parses one line of each layout, and answers for the others from a table. A program that prints millions of lines of a
few layouts costs one look-up a line. A line that may belong to a curve always passes: the answer depends on its layout alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from kfjob.joblog.lines.numbers import mask_digits
from kfjob.joblog.lines.text import clean_line
from kfjob.joblog.progress.figures.bars import MARKER
from kfjob.joblog.progress.figures.contents import announces_training, read_content

MAX_LENGTH = 600
"""Bytes of a line that the pre-filter reads; a longer line always passes."""
_BAR = MARKER.encode()
TABLE_SIZE = 8192
"""Layouts whose answer is remembered."""
_IDENTIFIER = re.compile(r"(?<![\w.])(?:[1a-f]{8}-(?:[1a-f]{4}-){3}[1a-f]{12}|(?=1{0,64}+(?:[a-df]|e[1a-f]))[1a-f]{8,64}+)\b")
"""It matches a UUID, or eight or more hexadecimal digits with a letter; digits are ones already."""
_FRACTION = re.compile(r"(?<=1)\.1++")
_WHOLE = re.compile(r"(?<![1:/,.IWEFCV-])1++(?![:/,-])")


class Layout(NamedTuple):
    """What lines that differ only in their numbers have in common."""

    matters: bool  # the general reader may need them
    is_header: bool = False  # they name the columns of a table


UNREAD = Layout(matters=True)
"""The answer for a line that passes whatever it holds."""


def may_hold_progress(line: bytes) -> bool:
    """Return whether the general reader may need the line."""
    return len(line) > MAX_LENGTH or read_masked(mask_digits(line.rstrip(b"\r"))).matters


@lru_cache(maxsize=TABLE_SIZE)
def read_masked(masked: bytes) -> Layout:
    """Return the layout of a line whose digits are ones; numbers of equal length need no further look."""
    if _BAR in masked or b"\r" in masked:
        return UNREAD
    return _read_skeleton(make_skeleton(masked))


def make_skeleton(line: bytes) -> str:
    """Return the line with the same number in place of each number, and of each hexadecimal identifier."""
    digits = _IDENTIFIER.sub("x1x", mask_digits(line).decode(errors="replace"))
    return _WHOLE.sub("1", _FRACTION.sub(".1", digits))


@lru_cache(maxsize=TABLE_SIZE)
def _read_skeleton(skeleton: str) -> Layout:
    text, _ = clean_line(skeleton)
    content = read_content(text)
    return Layout(matters=content.matters or announces_training(text), is_header=content.header is not None)
