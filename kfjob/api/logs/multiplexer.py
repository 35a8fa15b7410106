"""Read many streams into one bounded queue, each in its own thread. A slow reader blocks them, so memory stays bounded."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from kfjob.base.errors import KfjobError, NotFound

T = TypeVar("T")

MAX_ITEMS = 4096
"""Items in the queue of the reader of several logs."""
MAX_BYTES = 16 * 1024 * 1024
"""Size of the queued items; the reader may hold as many again, and each thread holds one item."""
GATHER_SECONDS = 0.02
"""After it has waited for an item, the reader waits for more, so that it does not wake up for each."""


class _Closed(Exception):
    """Nobody reads the multiplexer any more."""


class Multiplexer(Generic[T]):
    """Items of all sources in the order of their arrival. Sources may be added while it is read, also by a source."""

    def __init__(self, max_items: int = MAX_ITEMS, size_of: Callable[[T], int] = lambda _: 0) -> None:
        """Queue at most `max_items` items; `size_of` returns the size of an item in bytes."""
        self._max_items = max_items
        self._size_of = size_of
        self._queue: deque[T | KfjobError | None] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._open_sources = 0
        self._lock = threading.Lock()
        self._filled: queue.SimpleQueue[None] = queue.SimpleQueue()  # holds one element exactly while items are queued
        self._has_room = threading.Condition(self._lock)

    def add(self, source: Iterable[T], name: str) -> None:
        """Read `source` in its own thread. A source that raises NotFound (a pod without a log) ends quietly."""
        with self._lock:
            self._open_sources += 1
        threading.Thread(target=self._read, args=(source,), name=f"kfjob-{name}", daemon=True).start()

    def items(self, *, idle: float | None = None) -> Iterator[T | None]:
        """Yield every item until all sources have ended; None when no item came for `idle` seconds.

        Raises:
            KfjobError: a source raised it.
        """
        while self._open_sources:
            batch = self._take(idle)
            if not batch:
                yield None
            for item in batch:
                if item is None:
                    with self._lock:
                        self._open_sources -= 1
                elif isinstance(item, KfjobError):
                    raise item
                else:
                    yield item

    def close(self) -> None:
        """End each thread at its next item."""
        with self._lock:
            self._closed = True
            self._has_room.notify_all()

    def _take(self, idle: float | None) -> deque[T | KfjobError | None]:
        """Return all queued items; wait for the first, at most `idle` seconds.

        Ctrl-C can come at any moment of the wait. `Condition.wait` can then release its lock twice and raise a RuntimeError
        instead of KeyboardInterrupt, so this waits on a SimpleQueue.
        """
        had_items = not self._filled.empty()
        try:
            self._filled.get(timeout=idle)
        except queue.Empty:
            return deque()
        if not had_items:
            time.sleep(GATHER_SECONDS)
        with self._lock:
            batch, self._queue, self._queued_bytes = self._queue, deque(), 0
            self._has_room.notify_all()
        return batch

    def _read(self, source: Iterable[T]) -> None:
        with suppress(_Closed):
            try:
                for item in source:
                    self._put(item, self._size_of(item))
            except NotFound:
                pass
            except KfjobError as err:
                self._put(err)
            except Exception as err:  # noqa: BLE001 - an unexpected exception of a thread must reach the reader
                self._put(KfjobError("reading a stream failed", cause=f"{type(err).__name__}: {err}"))
            self._put(None)

    def _put(self, item: T | KfjobError | None, size: int = 0) -> None:
        with self._lock:
            self._has_room.wait_for(
                lambda: self._closed or (len(self._queue) < self._max_items and self._queued_bytes < MAX_BYTES)
            )
            if self._closed:
                raise _Closed
            self._queue.append(item)
            self._queued_bytes += size
            if len(self._queue) == 1:
                self._filled.put(None)
