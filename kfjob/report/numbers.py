"""Numbers and times as a report writes them, and the marks of an axis."""

from __future__ import annotations

import math
import time

SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60, 3600, 86400
_STEPS = (1, 2, 5, 10)
_SPANS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_SMALL, _LARGE = 0.01, 100_000


def clock(at: int | None) -> str:
    """`2026-11-21 07:10:48 UTC`."""
    return "–" if at is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at // SECOND))


def time_of_day(at: int) -> str:
    """`07:10:48`."""
    return time.strftime("%H:%M:%S", time.gmtime(at // SECOND))


def lasting(seconds: float | None) -> str:
    """`12 s`, `5 min 3 s`, `3 h 12 min`, `4 d 2 h`."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    for size, unit, part, smaller in ((DAY, "d", HOUR, "h"), (HOUR, "h", MINUTE, "min"), (MINUTE, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def number(value: float | None) -> str:
    """Four figures, as short as they get."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return {True: "NaN"}.get(math.isnan(value), "∞" if value > 0 else "−∞")
    if value and not _SMALL <= abs(value) < _LARGE:
        mantissa, _, exponent = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - four figures


def marks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between `low` and `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    scale = 10.0 ** math.floor(math.log10(rough))
    step = min((one * scale for one in _STEPS), key=lambda one: abs(one - rough))
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def time_marks(first: int, last: int, about: int = 6) -> list[int]:
    """Round times between two times."""
    rough = max((last - first) / SECOND / about, 1)
    step = next((one for one in _SPANS if one >= rough), _SPANS[-1]) * SECOND
    return list(range(-(-first // step) * step, last + 1, step))
