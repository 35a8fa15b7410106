"""click types of option values: durations, times, regular expressions."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from kfjob.units import SECOND

if TYPE_CHECKING:
    from kfjob.patterns import Pattern


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Seconds: `0.5`, `90`, `5m`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number of seconds."""
        from kfjob.spec.durations import parse_duration

        if isinstance(value, int | float):
            return float(value)
        seconds = float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else parse_duration(value)
        if seconds is None:
            self.fail(f"`{value}` is not a duration; write for example `90` (seconds), `5m` or `1h30m`", param, ctx)
        return float(seconds)


class Since(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A time: RFC 3339, or a duration before now."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return nanoseconds since the epoch."""
        from kfjob.observe.timestamps import parse_rfc3339

        if isinstance(value, int):
            return value
        if (timestamp := parse_rfc3339(value)) is not None:
            return timestamp
        try:
            return time.time_ns() - int(DURATION.convert(value, param, ctx) * SECOND)
        except click.BadParameter:
            self.fail(f"`{value}` is neither a duration (`10m`) nor a time (`2026-11-21T08:30:00Z`)", param, ctx)


class Expression(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A regular expression of RE2."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pattern:
        """Return the compiled expression."""
        from kfjob.patterns import SYNTAX_HINT, Pattern, PatternError

        pattern = value if isinstance(value, Pattern) else Pattern(value)
        try:
            pattern.check()
        except PatternError as err:
            self.fail(f"`{value}` is not a regular expression: {err}\nhint: {SYNTAX_HINT}", param, ctx)
        return pattern


DURATION, SINCE, PATTERN = Duration(), Since(), Expression()
