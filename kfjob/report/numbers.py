"""Numbers and times as a report shows them, and the ticks of an axis."""

from __future__ import annotations

import math
import sys
import time

from kfjob.base.text import format_figure
from kfjob.base.units import SECOND, check_time
from kfjob.joblog.lines.timestamps import has_year

MINUTE, HOUR, DAY = 60, 3600, 86400
"""Seconds."""
MAX_SECONDS = 1000 * 365 * DAY
"""Longest duration in a report; a longer one comes from a wrong number and is shown as unknown."""
_STEPS = (1, 2, 5, 10)
_INTERVALS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_SMALL, _LARGE = 0.01, 100_000


def format_time(time_ns: int | None) -> str:
    """Return `2026-11-21 07:10:48 UTC`, or a dash for None."""
    if time_ns is None or check_time(time_ns) is None:
        return "–"
    return _format_utc("%Y-%m-%d %H:%M:%S UTC" if has_year(time_ns) else "%m-%d %H:%M:%S UTC", time_ns)


def format_time_of_day(time_ns: int) -> str:
    """Return `07:10:48`."""
    return "–" if check_time(time_ns) is None else _format_utc("%H:%M:%S", time_ns)


def _format_utc(pattern: str, time_ns: int) -> str:
    return time.strftime(pattern, time.gmtime(time_ns // SECOND))


def format_duration(seconds: float | None) -> str:
    """Return `12 s`, `5 min 3 s`, `3 h 12 min` or `4 d 2 h`, or a dash for None."""
    if seconds is None:
        return "–"
    if not abs(seconds) < MAX_SECONDS:
        return "unknown"
    whole = round(seconds)
    for size, unit, part, smaller in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def format_number(value: float | None) -> str:
    """Return the number with four digits at most, or a dash for None."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return {True: "NaN"}.get(math.isnan(value), "∞" if value > 0 else "−∞")
    if value and not _SMALL <= abs(value) < _LARGE:
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return format_figure(value)


def choose_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between `low` and `high`."""
    if not high > low:
        return [low]
    exact = high / count - low / count
    if exact < sys.float_info.min:  # denormal numbers have no logarithm, or no step between them
        return [low]
    scale = 10.0 ** math.floor(math.log10(exact))
    step = min((factor * scale for factor in _STEPS), key=lambda size: abs(size - exact))
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def choose_time_ticks(first: int, last: int, count: int = 6) -> list[int]:
    """Return about `count` round times between two times, all in nanoseconds."""
    exact = max((last - first) // SECOND // count, 1)
    weeks = -(-exact // _INTERVALS[-1])  # beyond the longest interval: multiples of it
    step = next((interval for interval in _INTERVALS if interval >= exact), weeks * _INTERVALS[-1]) * SECOND
    return list(range(-(-first // step) * step, last + 1, step))
