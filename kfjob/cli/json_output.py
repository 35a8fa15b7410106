"""JSON for programs: the times of kfjob's models, nanoseconds since the epoch, become RFC 3339 texts."""

from __future__ import annotations

import time
from typing import Any

from kfjob.base.printable import encode_json
from kfjob.base.units import SECOND, check_time

_TIME_NAMES = ("time", "created", "started", "ended", "last_ended")
"""The names of times in models; names that end in `_time` are times too."""


def format_json(value: object, *, indent: int | None = 2) -> str:
    """Return a value as JSON with readable times; characters that could harm a terminal are escaped."""
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
