"""All that happens to one job, as one stream: its state, its pods, and the lines of every pod's log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from kfjob.api.logs.multiplexer import Funnel
from kfjob.backends.base import Backend, JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.events import Event, LogLine, OpenLine, PodChanged, PodPhase, Tick

TICK_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""How long the logs may take to end after the job has: a pod of an elastic job may still run when the first has succeeded."""

WhichLog = Callable[[PodChanged], LogRange | None]
"""Which part of a pod's log is to be followed, asked when the pod is seen for the first time; None: nothing of it."""


def events(
    backend: Backend, ref: JobRef, *, logs: bool = True, line_filter: LineFilterFactory | None = None
) -> Iterator[Event]:
    """The present state, then everything that happens, until the job has ended and its logs are read.

    With a `line_filter`, the logs come as `Backend.filtered_logs` yields them. A `Tick` comes when nothing else does for a
    second. Closing the iterator ends the threads.

    Raises:
        KfjobError: whatever the backend's watch or logs raised.
    """
    return Following(backend, ref, lambda _: LogRange(follow=True) if logs else None, line_filter=line_filter).events()


class Following:
    """One reading of a job's events. More logs may be added while it is read."""

    def __init__(self, backend: Backend, ref: JobRef, which: WhichLog, *, line_filter: LineFilterFactory | None = None) -> None:
        """A pod that is made anew under its name is another pod, and asked for again."""
        self.open: set[str] = set()  # pods whose logs have not ended
        self._funnel: Funnel[Event] = Funnel(size=_bytes)
        self._ended: float | None = None  # when the watch did
        self._backend = backend
        self._ref = ref
        self._which = which
        self._line_filter = line_filter
        self._seen: set[tuple[str, str]] = set()
        self._turns: dict[str, int] = {}  # by pod, which of its readings counts

    def events(self) -> Iterator[Event]:
        """As the function `events`."""
        self._funnel.add(self._watched(), "watch")
        try:
            for event in self._funnel.items(idle=TICK_SECONDS):
                yield event or Tick(time=time.time_ns())
                if self._ended is not None and time.monotonic() - self._ended > DRAIN_SECONDS:
                    return
        finally:
            self._funnel.close()

    def add(self, pod: str, wanted: LogRange) -> None:
        """Follow this pod's log too, in the place of what was followed of it before."""
        self.open.add(pod)
        self._turns[pod] = self._turns.get(pod, 0) + 1
        self._funnel.add(self._lines(pod, wanted, self._turns[pod]), f"log-{pod}")

    def leave(self, pod: str) -> None:
        """Follow this pod's log no longer."""
        self._turns[pod] = self._turns.get(pod, 0) + 1

    def _watched(self) -> Iterator[Event]:
        """The watch's events; a pod that is seen for the first time has its log followed from then on."""
        for event in self._backend.watch(self._ref):
            yield event
            if isinstance(event, PodChanged) and event.phase is not PodPhase.DELETED:
                self._ask_for_log(event)
        self._ended = time.monotonic()

    def _ask_for_log(self, pod: PodChanged) -> None:
        if (pod.pod, pod.uid) in self._seen:
            return
        self._seen.add((pod.pod, pod.uid))
        if wanted := self._which(pod):
            self.add(pod.pod, wanted)

    def _lines(self, pod: str, wanted: LogRange, turn: int) -> Iterator[LogEvent]:
        try:
            for line in self._read(pod, wanted):
                if self._turns[pod] != turn:
                    return
                yield line
        finally:
            if self._turns[pod] == turn:
                self.open.discard(pod)

    def _read(self, pod: str, wanted: LogRange) -> Iterator[LogEvent]:
        if self._line_filter:
            return self._backend.filtered_logs(self._ref, pod, wanted, self._line_filter)
        return self._backend.logs(self._ref, pod, wanted)


def _bytes(event: Event) -> int:
    return sys.getsizeof(event.text) if isinstance(event, LogLine | OpenLine) else 0
