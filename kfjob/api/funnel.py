"""Many streams read by threads, met in one bounded queue: a slow reader holds the threads back, the memory stays bounded."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from kfjob.errors import KfjobError, NotFound

T = TypeVar("T")


class _Closed(Exception):
    """The reader is gone."""


class Funnel(Generic[T]):
    """Items of all sources in the order in which they come. Sources may be added while it is read, by a source too."""

    def __init__(self, length: int = 4096) -> None:
        self._queue: queue.Queue[T | KfjobError | None] = queue.Queue(length)
        self._closed = threading.Event()
        self._open = 0
        self._lock = threading.Lock()

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
        while self._open or not self._queue.empty():
            try:
                item = self._queue.get(timeout=idle)
            except queue.Empty:
                yield None
                continue
            if item is None:
                with self._lock:
                    self._open -= 1
            elif isinstance(item, KfjobError):
                raise item
            else:
                yield item

    def close(self) -> None:
        """Let the threads end at their next item."""
        self._closed.set()

    def _read(self, source: Iterable[T]) -> None:
        with suppress(_Closed):
            try:
                for item in source:
                    self._put(item)
            except NotFound:
                pass
            except KfjobError as err:
                self._put(err)
            except Exception as err:  # noqa: BLE001 - a thread's fault must reach the reader, whatever it is
                self._put(KfjobError("reading a stream failed", cause=f"{type(err).__name__}: {err}"))
            self._put(None)

    def _put(self, item: T | KfjobError | None) -> None:
        while not self._closed.is_set():
            with suppress(queue.Full):
                self._queue.put(item, timeout=0.5)
                return
        raise _Closed
