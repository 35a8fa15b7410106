"""All that happens to one job, as one stream: its state, its pods, and the lines of every pod's log."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kfjob.api.funnel import Funnel
from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.events import Event, PodChanged, PodPhase, Tick

TICK_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""How long the logs may take to end after the job has: a pod of an elastic job may still run when the first has succeeded."""


def events(backend: Backend, ref: JobRef, *, logs: bool = True) -> Iterator[Event]:
    """The present state, then everything that happens, until the job has ended and its logs are read.

    A `Tick` comes when nothing else does for a second. Closing the iterator ends the threads.

    Raises:
        KfjobError: whatever the backend's watch or logs raised.
    """
    stream = _Stream(backend, ref, logs=logs)
    funnel = stream.funnel
    funnel.add(stream.watched(), "watch")
    try:
        for event in funnel.items(idle=TICK_SECONDS):
            yield event or Tick(time=time.time_ns())
            if stream.ended is not None and time.monotonic() - stream.ended > DRAIN_SECONDS:
                return
    finally:
        funnel.close()


class _Stream:
    def __init__(self, backend: Backend, ref: JobRef, *, logs: bool) -> None:
        self.funnel: Funnel[Event] = Funnel()
        self.ended: float | None = None  # when the watch did
        self._backend = backend
        self._ref = ref
        self._logs = logs
        self._followed: set[tuple[str, str]] = set()

    def watched(self) -> Iterator[Event]:
        """The watch's events; a pod that is seen for the first time has its log followed from then on."""
        for event in self._backend.watch(self._ref):
            yield event
            if self._logs and isinstance(event, PodChanged) and event.phase is not PodPhase.DELETED:
                self._follow(event)
        self.ended = time.monotonic()

    def _follow(self, pod: PodChanged) -> None:
        if (pod.pod, pod.uid) not in self._followed:
            self._followed.add((pod.pod, pod.uid))
            self.funnel.add(self._backend.logs(self._ref, pod.pod, LogRange(follow=True)), f"log-{pod.pod}")
