"""The time span in which each container printed, for a timeline. Memory is bounded, however often containers restart."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct, field

from kfjob.joblog.events import Event, LogLine

MAX_CONTAINERS = 64
"""Containers of one pod in memory; the oldest is dropped first."""


class LogSpan(Struct):
    """First and last time in one container's log, in nanoseconds since the epoch."""

    first: int
    last: int
    lines: int = 0


class LogSpans(Struct):
    """Log spans of all containers."""

    by_pod: dict[str, dict[str, LogSpan]] = field(default_factory=lambda: defaultdict(dict))
    """Per pod and container id, in the order in which the logs were read."""

    def feed(self, event: Event) -> None:
        """Add an event; only log lines with a time count."""
        if not isinstance(event, LogLine) or event.time is None:
            return
        spans = self.by_pod[event.pod]
        span = spans.get(event.container_id)
        if span is None:
            span = spans[event.container_id] = LogSpan(event.time, event.time)
            if len(spans) > MAX_CONTAINERS:
                del spans[next(iter(spans))]
        span.first, span.last = min(span.first, event.time), max(span.last, event.time)
        span.lines += 1
