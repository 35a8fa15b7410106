"""Times, numbers and tables as text. Pure: callers pass the time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kfjob.base.units import SECOND, check_time

MAX_SECONDS = 1000 * 365 * 86400
"""Longest duration to show; a longer one comes from a wrong number and is shown as `?`."""
_BLOCKS = "▁▂▃▄▅▆▇█"


_UNKNOWN_CLOCK = "--:--:--"


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


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with left-aligned columns, three spaces apart."""
    lines = [list(header), *([" ".join(cell.splitlines()) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


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
