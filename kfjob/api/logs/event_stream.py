"""One stream of all events of a job: its state, its pods, and the lines of every pod's log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from kfjob.api.logs.multiplexer import Multiplexer
from kfjob.backends.base import Backend, JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, LogLine, OpenLine, PodChanged, PodPhase, Tick

TICK_SECONDS = 1.0
FIRST_LINE_SECONDS = 3.0
"""Time after which a followed log without a line is taken for an empty one."""
DRAIN_SECONDS = 15.0
"""Time that logs are read after the end of the job; a pod of an elastic job may run on when the first pod has succeeded."""

ChooseRange = Callable[[PodChanged], LogRange | None]
"""Returns which part of a pod's log to follow, when the pod appears; None: no part."""
ChooseFilter = Callable[[str], LineFilterFactory | None]
"""Returns the filter for the lines of a pod; None: every line is read."""


def stream_events(
    backend: Backend,
    ref: JobRef,
    *,
    logs: bool = True,
    choose_filter: ChooseFilter | None = None,
    on_cut: Callable[[], None] | None = None,
) -> Iterator[Event]:
    """Yield the present state, then everything that happens, until the job has ended and its logs are read.

    With `choose_filter`, the logs are read with `Backend.filtered_logs`. `on_cut` is called at the end if lines were still
    arriving some time after the end of the job. A `Tick` comes when nothing happens for a second.
    Closing the iterator ends the threads.

    Raises:
        KfjobError: the backend's watch or logs failed.
    """
    log_range = LogRange(follow=True) if logs else None
    return EventStream(backend, ref, lambda _: log_range, choose_filter=choose_filter, on_cut=on_cut).events()


class EventStream:
    """The events of one job. Logs may be added and dropped while the stream is read."""

    def __init__(
        self,
        backend: Backend,
        ref: JobRef,
        choose_range: ChooseRange,
        *,
        choose_filter: ChooseFilter | None = None,
        on_cut: Callable[[], None] | None = None,
    ) -> None:
        """Prepare the stream. A pod that is created again under the same name is a new pod."""
        self.open_logs: set[str] = set()
        """Pods whose logs have not ended."""
        self._multiplexer: Multiplexer[Event] = Multiplexer(size_of=_size)
        self._watch_end: float | None = None
        self._backend = backend
        self._ref = ref
        self._choose_range = choose_range
        self._choose_filter = choose_filter
        self._on_cut = on_cut
        self._known_pods: set[tuple[str, str]] = set()  # name and uid
        self._silent_logs: dict[str, int] = {}  # logs without a line so far, with the times at which they were opened
        self._next_tick = time.monotonic_ns() + round(TICK_SECONDS * SECOND)
        self._readings: dict[str, int] = {}  # by pod, the number of the reading that is current

    def events(self) -> Iterator[Event]:
        """Yield the events; see `stream_events`."""
        self._multiplexer.add(self._watch(), "watch")
        begin = time.time_ns() - time.monotonic_ns()
        try:
            for event in self._multiplexer.items(idle=TICK_SECONDS):
                yield event or self._tick(begin)
                if isinstance(event, LogLine) and event.time and event.time > begin + self._next_tick:
                    yield self._tick(begin)  # the lines are those of the present, although they never pause
                if self._watch_end is not None and time.monotonic() - self._watch_end > DRAIN_SECONDS:
                    if event is not None and self._on_cut is not None:
                        self._on_cut()
                    return
        finally:
            self._multiplexer.close()

    def _tick(self, begin: int) -> Tick:
        """Return a tick; `begin` is the time at which the monotonic clock was 0: a clock that jumps is no stall of the job."""
        now = time.monotonic_ns()
        self._next_tick = now + round(TICK_SECONDS * SECOND)
        is_current = all(now - opened > FIRST_LINE_SECONDS * SECOND for opened in tuple(self._silent_logs.values()))
        return Tick(time=begin + now, is_current=is_current)

    def add_log(self, pod: str, log_range: LogRange) -> None:
        """Follow this part of the pod's log, instead of the part that was followed before."""
        self.open_logs.add(pod)
        self._readings[pod] = self._readings.get(pod, 0) + 1
        self._silent_logs[pod] = time.monotonic_ns()
        self._multiplexer.add(self._read_log(pod, log_range, self._readings[pod]), f"log-{pod}")

    def drop_log(self, pod: str) -> None:
        """Stop following this pod's log."""
        self._readings[pod] = self._readings.get(pod, 0) + 1
        self._silent_logs.pop(pod, None)

    def _watch(self) -> Iterator[Event]:
        """Yield the events of the watch, and follow the log of each new pod."""
        for event in self._backend.watch(self._ref):
            yield event
            if isinstance(event, PodChanged) and event.phase is not PodPhase.DELETED:
                self._follow_new_pod(event)
        self._watch_end = time.monotonic()

    def _follow_new_pod(self, pod: PodChanged) -> None:
        if (pod.pod, pod.uid) in self._known_pods:
            return
        self._known_pods.add((pod.pod, pod.uid))
        if log_range := self._choose_range(pod):
            self.add_log(pod.pod, log_range)

    def _read_log(self, pod: str, log_range: LogRange, reading: int) -> Iterator[LogEvent]:
        backend = self._backend
        line_filter = self._choose_filter(pod) if self._choose_filter else None
        try:
            for line in (
                backend.filtered_logs(self._ref, pod, log_range, line_filter)
                if line_filter
                else backend.logs(self._ref, pod, log_range)
            ):
                if self._readings[pod] != reading:
                    return
                yield line
                self._silent_logs.pop(pod, None)
        finally:
            if self._readings[pod] == reading:
                self.open_logs.discard(pod)
                self._silent_logs.pop(pod, None)


def _size(event: Event) -> int:
    return sys.getsizeof(event.text) if isinstance(event, LogLine | OpenLine) else 0
