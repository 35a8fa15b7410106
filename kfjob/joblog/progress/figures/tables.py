"""This module reads tables with a header line: the names stand above the figures."""

from __future__ import annotations

import re

from msgspec import Struct

from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.lines.vocabulary import SHORT_NAMES

MAX_WIDTH = 400
"""Characters of a row of a table."""
MIN_COLUMNS, MAX_COLUMNS = 3, 40
"""Columns of a table of figures, at least and at most."""
_MAX_OPEN = 60
"""Characters at the end of a line in which a name without its value is searched."""
WIDE_GAP = 16
"""This number of spaces means an empty cell."""

_SPACED = re.compile(r"[ \t]{2,}|\t")
_ROW = re.compile(r"[\s|│┃║\"]*[-+]?[\d.]")
_MAX_PAIR = 200
"""Characters of a line with one name and one value."""
_CELLS = re.compile(r"[ \t]*[|│┃][ \t>]{0,8}([^|│┃]{1,80})[|│┃]([^|│┃]{1,40})(?:[|│┃][ \t]*)?$")
_CELLS_WITHOUT_EDGE = re.compile(r"([A-Za-z][^|│┃\d]{0,78})[|│┃][ \t]*([-+.]?\d[^|│┃]{0,38})[|│┃][ \t]*$")
"""The first edge of `| name | value |` may be taken for the end of a logger's prefix."""
_LINES = str.maketrans("│┃║", "|||")
_NUMBER = re.compile(r"(?<![\w#])[-+]?\d")
_OPEN = re.compile(r"(?<![^ \t])([A-Za-z][\w/]{0,40}+)[:=]$")
"""It matches a name at the end of a line that was wrapped before its value."""


class TableHeader(Struct, frozen=True):
    """The header of a table."""

    spaced: tuple[str, ...]  # columns if two spaces separate them
    words: tuple[str, ...]  # columns if one space does
    separator: str = ""  # "|" or ",", where the table has one
    is_above_bars: bool = False  # no column but the epoch is known, so only a row with a progress bar shows training

    @property
    def open_name(self) -> str:
        """The name whose value begins the next line; "" for a table of several columns."""
        return "" if self.spaced[1:] else self.spaced[0]


def parse_header(text: str) -> TableHeader | None:
    """Return the columns if the line is the header of a table with a counter and something else that is known."""
    if len(text) > MAX_WIDTH or _NUMBER.search(text) or "=" in text or "{" in text:
        return None
    text = text if text.isascii() else text.translate(_LINES)
    if text.lstrip().startswith("#") and _has_meaning(tuple(text.replace("#", " ", 1).split())):
        text = text.replace("#", " ", 1)  # the header of a file for plots is a comment
    separator = next((mark for mark in "|," if text.count(mark) >= MIN_COLUMNS - 1), "")
    if not separator and ":" in text:
        return None
    spaced = _split(text, separator)
    words = () if separator else tuple(text.split())
    if not any(MIN_COLUMNS <= len(columns) <= MAX_COLUMNS and _has_meaning(columns) for columns in (spaced, words)):
        return TableHeader(spaced, (), is_above_bars=True) if not separator and _is_above_bars(spaced) else None
    is_single_spaced = any(len(_find_roles(tuple(column.split()))) > 1 for column in spaced) and not separator
    return TableHeader(words if is_single_spaced else spaced, words, separator)


def parse_open_name(text: str) -> TableHeader | None:
    """Return a table with one column if the line ends with the name of a loss or learning rate, before its value."""
    match = _OPEN.search(text.rstrip()[-_MAX_OPEN:]) if text.rstrip().endswith((":", "=")) else None
    meaning = find_meaning(split_name(match[1])) if match else None
    return TableHeader((match[1],), ()) if match and meaning and meaning.quantity in {Quantity.LOSS, Quantity.LR} else None


def _split(text: str, separator: str) -> tuple[str, ...]:
    parts = text.strip().strip("|").split(separator) if separator else _SPACED.split(text.strip())
    return tuple(part.strip().strip('"') for part in parts)


def _is_above_bars(columns: tuple[str, ...]) -> bool:
    """Return whether the columns are words, of which the first one counts epochs."""
    is_table = MIN_COLUMNS < len(columns) <= MAX_COLUMNS and all(column.isidentifier() for column in columns)
    return is_table and _find_roles(columns[:1]) == [Quantity.EPOCH]


def _has_meaning(columns: tuple[str, ...]) -> bool:
    quantities = _find_roles(columns)
    counts = [quantity for quantity in quantities if quantity in {Quantity.STEP, Quantity.EPOCH}]
    return bool(counts) and bool(quantities[1:]) and len(counts) < len(columns)


def _find_roles(columns: tuple[str, ...]) -> list[Quantity]:
    return [meaning.quantity for column in columns if (meaning := find_meaning(split_name(column_name(column))))]


def column_name(column: str) -> str:
    """Return the name of a column in words: `E` and `#` are epoch and step in tables."""
    plain = column.partition("(")[0].strip() or column
    return SHORT_NAMES.get(plain.lower(), plain)


def split_cells(text: str) -> tuple[str, str] | None:
    """Return name and value if the line is `| name | value |`."""
    cells = (_CELLS.match(text) or _CELLS_WITHOUT_EDGE.match(text)) if len(text) <= _MAX_PAIR else None
    return (cells[1].strip(), cells[2].strip()) if cells else None


def looks_like_row(text: str) -> bool:
    """Return whether the line begins with a number, as rows do."""
    return len(text) <= MAX_WIDTH and _ROW.match(text) is not None


def read_row(table: TableHeader, text: str) -> str | None:
    """Return the row as `name: value` pairs; None if the line does not fit the header."""
    text = text if text.isascii() else text.translate(_LINES)
    cells = _split(text, table.separator)
    if len(cells) == len(table.spaced):
        return _join(table.spaced, cells)
    if table.separator:
        return None
    words = text.split()
    for columns in (table.words, table.spaced):
        if len(words) == len(columns):
            return _join(columns, tuple(words))
    words = text.strip().partition(" " * WIDE_GAP)[0].split()
    return _join(table.words, tuple(words)) if words[1:] and len(words) <= len(table.words) else None


def _join(columns: tuple[str, ...], cells: tuple[str, ...]) -> str:
    return ", ".join(f"{column_name(column)}: {cell}" for column, cell in zip(columns, cells, strict=False) if cell)
