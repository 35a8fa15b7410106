"""From when to when each container printed: what a timeline is drawn from. Bounded, however many restarts there are."""

from __future__ import annotations

from collections import defaultdict

from msgspec import Struct, field

from kfjob.events import Event, LogLine

MAX_CONTAINERS = 64
"""Containers of one pod that are told apart; of more the newest."""


class LogSpan(Struct):
    """One container's log. Times in nanoseconds since the epoch."""

    first: int
    last: int
    lines: int = 0


class LogSpans(Struct):
    """By pod, then by container, in the order in which they were read."""

    by_pod: dict[str, dict[str, LogSpan]] = field(default_factory=lambda: defaultdict(dict))

    def feed(self, event: Event) -> None:
        """One more event; only lines with a time count."""
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
