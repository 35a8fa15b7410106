"""click types of option values: durations, times, regular expressions."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.units import SECOND

if TYPE_CHECKING:
    from kfjob.base.patterns import Pattern


MAX_DURATION_SECONDS = 10 * 365 * 86_400
"""Duration in an option."""
_TOO_LONG = "a duration is at most 10 years"


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Seconds: `0.5`, `90`, `5m`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of seconds."""
        if isinstance(value, int | float):
            return float(value)
        if (seconds := _read_seconds(value)) is None:
            self.fail(f"`{value}` is not a duration; write for example `90` (seconds), `5m` or `1h30m`", param, ctx)
        if seconds > MAX_DURATION_SECONDS:
            self.fail(_TOO_LONG, param, ctx)
        return seconds


class Since(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A time: RFC 3339, or a duration before now."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return nanoseconds since the epoch."""
        from kfjob.joblog.lines.timestamps import parse_rfc3339

        if isinstance(value, int):
            return value
        if (timestamp := parse_rfc3339(value)) is not None:
            return timestamp
        if (seconds := _read_seconds(value)) is None:
            self.fail(f"`{value}` is neither a duration (`10m`) nor a time (`2026-11-21T08:30:00Z`)", param, ctx)
        if seconds > MAX_DURATION_SECONDS:
            self.fail(_TOO_LONG, param, ctx)
        return time.time_ns() - int(seconds * SECOND)


def _read_seconds(text: str) -> float | None:
    """Return the seconds of a duration; None if the text is no duration."""
    from kfjob.base.units import parse_duration

    try:
        seconds = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else parse_duration(text)
        return None if seconds is None else float(seconds)
    except (ValueError, OverflowError):  # an integer with thousands of digits
        return math.inf


class Expression(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A regular expression of RE2."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pattern:
        """Return the compiled expression."""
        from kfjob.base.patterns import Pattern, PatternError

        pattern = value if isinstance(value, Pattern) else Pattern(value)
        try:
            pattern.check()
        except PatternError as err:
            hint = f"\nhint: {err.hint}" if err.hint else ""
            self.fail(f"`{value}` is not a regular expression: {err}{hint}", param, ctx)
        return pattern


class WholeNumber(click.IntRange):
    """A whole number of a range, under a name that reads well in click's message."""

    name = "whole number"


DURATION, SINCE, PATTERN = Duration(), Since(), Expression()
WHOLE, POSITIVE = WholeNumber(min=0), WholeNumber(min=1)
