"""Kinds of values that options take: spans of time, moments, regular expressions."""

from __future__ import annotations

import re
import time
from typing import Any

import click

SECOND = 1_000_000_000


class Span(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """Seconds: `0.5`, `90`, `5m`, `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click asks for it."""
        from kfjob.spec.durations import parse_duration

        if isinstance(value, int | float):
            return float(value)
        span = float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else parse_duration(value)
        if span is None:
            self.fail(f"`{value}` is not a duration; write seconds, or for example `5m`, `1h30m`", param, ctx)
        return float(span)


class Since(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A moment, in nanoseconds since the epoch: a span before now, or a time as logs print it."""

    name = "since"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As click asks for it."""
        from kfjob.observe.timestamps import parse_rfc3339

        if isinstance(value, int):
            return value
        if (moment := parse_rfc3339(value)) is not None:
            return moment
        try:
            return time.time_ns() - int(SPAN.convert(value, param, ctx) * SECOND)
        except click.BadParameter:
            self.fail(f"`{value}` is neither a duration (`10m`) nor a time (`2026-11-21T08:30:00Z`)", param, ctx)


class Pattern(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A regular expression."""

    name = "regex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[str]:
        """As click asks for it."""
        try:
            return re.compile(value)
        except re.error as err:
            self.fail(f"`{value}` is not a regular expression: {err}", param, ctx)


SPAN, SINCE, PATTERN = Span(), Since(), Pattern()
