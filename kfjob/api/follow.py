"""All that happens to one job, as one stream: its state, its pods, and the lines of every pod's log.

One thread watches, one thread a pod reads its log. They meet in a bounded queue: a reader that is slower than the job holds
the threads back instead of filling the memory.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.errors import KfjobError, NotFound
from kfjob.events import Event, PodChanged, PodPhase, Tick

QUEUE_LENGTH = 4096
TICK_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""How long the logs may take to end after the job has: a pod of an elastic job may still run when the first has succeeded."""


def events(backend: Backend, ref: JobRef, *, logs: bool = True) -> Iterator[Event]:
    """The present state, then everything that happens, until the job has ended and its logs are read.

    A `Tick` comes when nothing else does for a second. Closing the iterator ends the threads.

    Raises:
        KfjobError: whatever the backend's watch raised.
    """
    stream = _Stream(backend, ref, logs=logs)
    stream.start()
    try:
        yield from stream
    finally:
        stream.close()


class _Closed(Exception):  # noqa: N818 - never leaves this module
    """The reader is gone."""


class _Stream:
    def __init__(self, backend: Backend, ref: JobRef, *, logs: bool) -> None:
        self._backend = backend
        self._ref = ref
        self._logs = logs
        self._queue: queue.Queue[Event | KfjobError | None] = queue.Queue(QUEUE_LENGTH)
        self._closed = threading.Event()
        self._followed: dict[str, threading.Thread] = {}

    def start(self) -> None:
        self._thread(self._watch, "watch")

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                item = self._queue.get(timeout=TICK_SECONDS)
            except queue.Empty:
                yield Tick(time=time.time_ns())
                continue
            if item is None:
                return
            if isinstance(item, KfjobError):
                raise item
            yield item

    def _thread(self, target: object, name: str, *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=f"kfjob-{name}", daemon=True)  # type: ignore[arg-type]
        thread.start()
        return thread

    def _put(self, item: Event | KfjobError | None) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.5)
                return
        raise _Closed

    def _watch(self) -> None:
        with suppress(_Closed):
            try:
                for event in self._backend.watch(self._ref):
                    self._put(event)
                    if self._logs and isinstance(event, PodChanged):
                        self._follow(event)
                self._drain()
            except KfjobError as err:
                self._put(err)
            except Exception as err:  # noqa: BLE001 - a thread's fault must reach the reader, whatever it is
                self._put(KfjobError("following the job failed", cause=f"{type(err).__name__}: {err}"))
            self._put(None)

    def _follow(self, pod: PodChanged) -> None:
        key = f"{pod.pod}/{pod.uid}"
        if key not in self._followed and pod.phase is not PodPhase.DELETED:
            self._followed[key] = self._thread(self._read, f"log-{pod.pod}", pod.pod)

    def _read(self, pod: str) -> None:
        with suppress(_Closed, NotFound):
            try:
                for line in self._backend.logs(self._ref, pod, LogRange(follow=True)):
                    self._put(line)
            except NotFound:
                raise
            except KfjobError as err:
                self._put(err)

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        for thread in self._followed.values():
            thread.join(max(0.0, deadline - time.monotonic()))
