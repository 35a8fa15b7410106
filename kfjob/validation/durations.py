"""Durations as users write them: `90s`, `5m`, `1d12h`."""

from __future__ import annotations

import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PARTS = re.compile(r"(?<!\d)(\d+)([smhd])")


def parse_duration(text: str) -> int | None:
    """Return the seconds of a duration such as `90m` or `1d12h`; None if the text has another form."""
    parts = _PARTS.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


def format_duration(seconds: int) -> str:
    """Return seconds, which are not negative, as `parse_duration` reads them: `36h` is `1d12h`."""
    parts = ((seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "m"), (seconds % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
