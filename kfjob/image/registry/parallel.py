"""Several transfers at the same time, a few of them: one connection seldom fills a line to a registry, and layers are many.

The threads are daemons: whoever presses Ctrl-C does not wait for a registry that does not answer.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kfjob.image.registry.uploads import ReportProgress, ignore_progress

TRANSFER_THREADS = 4
"""Each holds a chunk or two in memory; ECR throttles who sends much more at once."""

T = TypeVar("T")
Transfer = Callable[[ReportProgress], T]


class _Stopped(Exception):
    """Another transfer has failed."""


def run_transfers(
    transfers: Sequence[Transfer[T]], *, progress: ReportProgress = ignore_progress, most: int = TRANSFER_THREADS
) -> list[T]:
    """What the transfers give, in their order. `progress` is told by one of them at a time.

    Raises:
        Exception: the first that one of them raises. Those that are on their way then end with the chunk they are at, before
            this returns; the rest are not begun.
    """
    crew = _Crew(transfers, progress)
    threads = [threading.Thread(target=crew.work, daemon=True) for _ in range(min(most, len(transfers)))]
    for thread in threads:
        thread.start()
    try:
        return crew.results()
    except Exception:
        crew.stop.set()
        for thread in threads:
            thread.join()
        raise
    finally:
        crew.stop.set()


class _Crew(Generic[T]):
    """Threads that take one transfer after the other."""

    def __init__(self, transfers: Sequence[Transfer[T]], progress: ReportProgress) -> None:
        self._transfers, self._progress = transfers, progress
        self._waiting = iter(range(len(transfers)))
        self._ended = queue.SimpleQueue[tuple[int, T | BaseException]]()
        self._lock, self.stop = threading.Lock(), threading.Event()

    def work(self) -> None:
        """What a thread does."""
        while not self.stop.is_set():
            with self._lock:
                number = next(self._waiting, None)
            if number is None:
                return
            try:
                self._ended.put((number, self._transfers[number](self._told)))
            except BaseException as err:  # noqa: BLE001 - it is raised where all of them come together
                self._ended.put((number, err))

    def results(self) -> list[T]:
        """Wait for all of them, or for the first that fails."""
        found: dict[int, T] = {}
        while len(found) < len(self._transfers):
            number, result = self._ended.get()
            if isinstance(result, BaseException):
                raise result
            found[number] = result
        return [found[number] for number in range(len(self._transfers))]

    def _told(self, digest: str, done: int, size: int) -> None:
        if self.stop.is_set():
            raise _Stopped
        with self._lock:
            self._progress(digest, done, size)
