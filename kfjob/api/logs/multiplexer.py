"""Many streams read by threads, met in one bounded queue: a slow reader holds the threads back, the memory stays bounded."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from kfjob.errors import KfjobError, NotFound

T = TypeVar("T")

LENGTH = 4096
BYTES = 16 * 1024 * 1024
"""Of items that wait. As many again may be in the reader's hands, and one item in those of each thread."""
GATHER_SECONDS = 0.02
"""A reader that has waited for an item lets more of them come, or it would be woken for each."""


class _Closed(Exception):
    """The reader is gone."""


class Funnel(Generic[T]):
    """Items of all sources in the order in which they come. Sources may be added while it is read, by a source too."""

    def __init__(self, length: int = LENGTH, size: Callable[[T], int] = lambda _: 0) -> None:
        """At most `length` items wait; `size` tells how many bytes one holds."""
        self._length = length
        self._size_of = size
        self._waiting: deque[T | KfjobError | None] = deque()
        self._bytes = 0  # of those that wait
        self._closed = False
        self._open = 0
        self._lock = threading.Lock()
        self._there_is: queue.SimpleQueue[None] = queue.SimpleQueue()  # one, exactly while items wait
        self._there_is_room = threading.Condition(self._lock)

    def add(self, source: Iterable[T], name: str) -> None:
        """Read `source` in a thread of its own. What is not found (a pod without a log) ends quietly."""
        with self._lock:
            self._open += 1
        threading.Thread(target=self._read, args=(source,), name=f"kfjob-{name}", daemon=True).start()

    def items(self, *, idle: float | None = None) -> Iterator[T | None]:
        """Every item until all sources have ended; None when there was none for `idle` seconds.

        Raises:
            KfjobError: whatever a source raised.
        """
        while self._open:
            taken = self._take(idle)
            if not taken:
                yield None
            for item in taken:
                if item is None:
                    with self._lock:
                        self._open -= 1
                elif isinstance(item, KfjobError):
                    raise item
                else:
                    yield item

    def close(self) -> None:
        """Let the threads end at their next item."""
        with self._lock:
            self._closed = True
            self._there_is_room.notify_all()

    def _take(self, idle: float | None) -> deque[T | KfjobError | None]:
        """All that waits; what comes first is waited for, `idle` seconds at most.

        Ctrl-C may come at any moment of it. A `Condition` that is waited for can then release its lock twice, and ends in a
        RuntimeError in the place of the KeyboardInterrupt.
        """
        came_at_once = not self._there_is.empty()
        try:
            self._there_is.get(timeout=idle)
        except queue.Empty:
            return deque()
        if not came_at_once:
            time.sleep(GATHER_SECONDS)
        with self._lock:
            taken, self._waiting, self._bytes = self._waiting, deque(), 0
            self._there_is_room.notify_all()
        return taken

    def _read(self, source: Iterable[T]) -> None:
        with suppress(_Closed):
            try:
                for item in source:
                    self._put(item, self._size_of(item))
            except NotFound:
                pass
            except KfjobError as err:
                self._put(err)
            except Exception as err:  # noqa: BLE001 - a thread's fault must reach the reader, whatever it is
                self._put(KfjobError("reading a stream failed", cause=f"{type(err).__name__}: {err}"))
            self._put(None)

    def _put(self, item: T | KfjobError | None, size: int = 0) -> None:
        with self._lock:
            self._there_is_room.wait_for(lambda: self._closed or (len(self._waiting) < self._length and self._bytes < BYTES))
            if self._closed:
                raise _Closed
            self._waiting.append(item)
            self._bytes += size
            if len(self._waiting) == 1:
                self._there_is.put(None)
