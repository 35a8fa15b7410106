"""Times, numbers, tables and JSON as text. Pure: callers pass the time."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from kfjob.base.printable import encode_json
from kfjob.base.units import SECOND, check_time

MAX_SECONDS = 1000 * 365 * 86400
"""Longest duration to show; a longer one comes from a wrong number and is shown as `?`."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = "   "
MIN_CUT_WIDTH = 12
"""Characters of a cell that a narrow terminal shows at least."""
_WORD = re.compile(r"( *)((?:`[^`\n]*`|[^ \n])+)")
"""A word with the spaces before it; what backticks enclose is one word, because a command is copied as a whole."""
_ITEM = re.compile(r"( *)([^·]+·|[^·]+)")
"""The same for the items of a list, such as several commands."""
_LEAD = r".*\S {2,}(?=\S)| *(?:(?:error|warning|hint|note|cause|next): |\| |--> )?"
"""The columns before the last one, or the mark at the beginning of a line: further lines begin below what follows it."""
_COLOUR = r"\x1b\[[\d;]*m"
_UNKNOWN_CLOCK = "--:--:--"
_TIME_NAMES = ("time", "created", "started", "ended", "last_ended", "observed")
"""The names of times in models; names that end in `_time` are times too."""


def format_age(since: int | None, now: int) -> str:
    """Return the time since a moment as kubectl prints it: `12s`, `5m03s`, `3h12m`, `4d2h`; `-` for an unknown moment."""
    return "-" if check_time(since) is None else format_duration(max(now - (since or 0), 0) // SECOND)


def format_duration(seconds: float | None) -> str:
    """Return `12s`, `5m03s`, `3h12m` or `4d2h`; `-` for None."""
    if seconds is None:
        return "-"
    if not abs(seconds) < MAX_SECONDS:
        return "?"
    total = round(seconds)
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes == 0:
        return f"{total}s"
    if hours == 0:
        return f"{minutes}m{total % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if days == 0 else f"{days}d{hours % 24}h"


def utc_clock(time_ns: int | None) -> str:
    """Return the time of day in UTC; `--:--:--` for None."""
    return _UNKNOWN_CLOCK if check_time(time_ns) is None else time.strftime("%H:%M:%S", time.gmtime((time_ns or 0) // SECOND))


def local_clock(time_ns: int) -> str:
    """Return the time of day in the time zone of this machine."""
    return _UNKNOWN_CLOCK if check_time(time_ns) is None else time.strftime("%H:%M:%S", time.localtime(time_ns // SECOND))


def format_span(start: int | None, end: int | None, now: int, *, is_over: bool) -> str:
    """Return how long something took, or has taken until now; `-` if that is unknown."""
    return "-" if is_over and end is None else format_age(start, end or now)


def local_minute(time_ns: int | None) -> str:
    """Return date and time of day to the minute in the time zone of this machine; `-` for None."""
    if check_time(time_ns) is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime((time_ns or 0) // SECOND))


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, width: int | None = None, flexible: Sequence[str] = ()
) -> str:
    """Return a table with left-aligned columns, three spaces apart.

    If it is wider than `width`, cells of the `flexible` columns end in an ellipsis: the first column gives way first.
    """
    lines = [list(header), *([" ".join(cell.splitlines()) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - (width or sys.maxsize)
    for column in (header.index(name) for name in flexible if name in header):
        kept = min(widths[column], max(widths[column] - excess, MIN_CUT_WIDTH)) if excess > 0 else widths[column]
        excess -= widths[column] - kept
        widths[column] = kept
    return "\n".join(
        _GAP.join(shorten(cell, size).ljust(size) for cell, size in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def shorten(text: str, width: int) -> str:
    """Return a text of at most `width` characters; one that was cut ends in an ellipsis."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def wrap(text: str, width: int, *, indent: int | None = None) -> str:
    """Return the text with each line wrapped at words; a word that is too long, and the row of a wide table, stay as they are.

    Further lines of a line have the indent of its last column, or this `indent`.
    """
    return "\n".join(_wrap_line(line, width, indent) for line in text.split("\n"))


def _wrap_line(line: str, width: int, indent: int | None) -> str:
    match = re.match(_LEAD, line) if indent is None else None
    lead = match[0] if match else ""
    indent = _measure(lead) if indent is None else indent
    if _measure(line) <= width or indent > width // 2:
        return line
    rest, lines, length = line[len(lead) :], [lead], _measure(lead)
    for gap, word in (_ITEM if " · " in rest else _WORD).findall(rest):
        if length > indent and length + _measure(gap + word) > width:
            lines.append(" " * indent + word)
        else:
            lines[-1] += gap + word
        length = _measure(lines[-1])
    return "\n".join(lines)


def _measure(text: str) -> int:
    return len(re.sub(_COLOUR, "", text))


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """Return the values as a curve of one line; each character is the mean of its share. Infinities and NaNs are left out."""
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return ""
    largest = max(map(abs, values)) or 1.0  # sums of huge values would overflow
    values = [value / largest for value in values]
    width = min(width, len(values))
    cuts = [round(i * len(values) / width) for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in means)


def format_json(value: object, *, indent: int | None = 2) -> str:
    """Return a value as JSON: times, in nanoseconds since the epoch, become RFC 3339 texts.

    Characters that could harm a terminal are escaped.
    """
    return encode_json(_convert_times(value), indent=indent)


def format_rfc3339(time_ns: int) -> str | None:
    """Return a time in RFC 3339, in UTC and with all nine digits of its nanoseconds; None for an impossible time."""
    if check_time(time_ns) is None:
        return None
    seconds, nanoseconds = divmod(time_ns, SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09}Z"


def _convert_times(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _convert_times(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_convert_times(inner, name) for inner in value]
    is_time = isinstance(value, int) and not isinstance(value, bool) and (name in _TIME_NAMES or name.endswith("_time"))
    return format_rfc3339(value) if is_time else value
