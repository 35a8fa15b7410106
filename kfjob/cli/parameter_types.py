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


MAX_COUNT = 10**9
"""Value of an option that is a number; lists, slices and sleeps of C take no integer of any size."""
MAX_DURATION_SECONDS = 10 * 365 * 86_400
"""Duration in an option."""
_TOO_LONG = "a duration is at most 10 years"


class Count(click.IntRange):
    """A whole number."""

    name = "number"

    def __init__(self, minimum: int, maximum: int = MAX_COUNT) -> None:
        """Accept numbers from `minimum` to `maximum`."""
        super().__init__(min=minimum, max=maximum)
        self._maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. The error for another text suggests the number that it probably means."""
        try:
            number = int(value)
        except ValueError:
            self.fail(_describe_word(value, whole=True), param, ctx)
        if number < self.min or number > self._maximum:  # type: ignore[operator]  # both ends are set
            is_small = number < self._maximum
            self.fail(f"`{value}` is {f'less than {self.min}' if is_small else f'more than {self._maximum}'}", param, ctx)
        return number

    def _describe_range(self) -> str:
        if self._maximum != MAX_COUNT:
            return super()._describe_range()
        return f"x>={self.min}"  # in `--help`, where that maximum says nothing


class Number(click.FloatRange):
    """A positive number."""

    name = "number"

    def __init__(self, maximum: float = MAX_COUNT) -> None:
        """Accept numbers up to `maximum`."""
        super().__init__(min=0, min_open=True, max=maximum)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. The error for another text suggests the number that it probably means."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(_describe_word(value, whole=False), param, ctx)
        if number <= 0 or number > self.max:  # type: ignore[operator]  # both ends are set
            self.fail(f"`{value}` is {'not more than 0' if number <= 0 else f'more than {self.max}'}", param, ctx)
        return number

    def _describe_range(self) -> str:
        return "x>0" if self.max == MAX_COUNT else super()._describe_range()


def _describe_word(text: str, *, whole: bool) -> str:
    return f"`{text}` is not a {'whole ' if whole else ''}number"


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


DURATION, SINCE, PATTERN = Duration(), Since(), Expression()
