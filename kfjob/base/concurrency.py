"""Threads that wait for the network or the disk, with one rule for Ctrl-C: a blocked thread never keeps the process alive.

The threads of a `ThreadPoolExecutor` are joined when the interpreter ends, so an interrupted process would wait for a server
that does not answer. Daemon threads are not joined. Results travel through `queue.SimpleQueue`, because Ctrl-C during
`threading.Condition.wait` can release the lock twice and then raises a RuntimeError instead of KeyboardInterrupt.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")
R = TypeVar("R")
SLOW_SECONDS = 2.0
"""Duration of a wait after which a command says what it waits for."""
cleanup_notices: list[str] = []
"""What remains if the process ends now, and how to remove it."""


@contextmanager
def cleaning_up(notice: str) -> Iterator[None]:
    """Let a command that a signal ends inside this block print the notice."""
    cleanup_notices.append(notice)
    try:
        yield
    finally:
        cleanup_notices.remove(notice)


WaitListener = Callable[[str, float | None], None]
"""Receives what a command waits for, and the most seconds of the wait if it has an end."""
_wait_listeners: list[WaitListener] = []


@contextmanager
def reporting_waits(listener: WaitListener) -> Iterator[None]:
    """Call the listener for every wait inside this block that takes longer than `SLOW_SECONDS`."""
    _wait_listeners.append(listener)
    try:
        yield
    finally:
        _wait_listeners.remove(listener)


@contextmanager
def waiting_for(what: str, seconds: float | None = None) -> Iterator[None]:
    """Report this block as a wait of at most `seconds` for `what` if it takes long."""
    timer = threading.Timer(SLOW_SECONDS, _report_wait, [what, seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _report_wait(what: str, seconds: float | None) -> None:
    for listener in tuple(_wait_listeners):
        listener(what, seconds)


class _Result(Generic[R]):
    """The value that a call returned, or the exception that it raised."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = call()
        except BaseException as err:  # noqa: BLE001 - `get` raises it, in the thread that waits
            self._error = err

    def get(self) -> R:
        if self._error is not None:
            raise self._error
        return self._value


class Task(Generic[R]):
    """A call that runs in a daemon thread."""

    def __init__(self, call: Callable[[], R], *, name: str) -> None:
        """Start the thread."""
        results = queue.SimpleQueue[_Result[R]]()
        self._results = results
        self._thread = threading.Thread(target=lambda: results.put(_Result(call)), name=f"kfjob-{name}", daemon=True)
        self._thread.start()

    def result(self, timeout: float | None = None, *, waits_for: str = "") -> R:
        """Wait for the call, then return its value or raise its exception. May be called only once.

        A long wait is reported under the name `waits_for`.

        Raises:
            TimeoutError: the call continues after `timeout` seconds.
        """
        completed = None
        if waits_for and (timeout is None or timeout > SLOW_SECONDS):
            with suppress(queue.Empty):
                completed = self._results.get(timeout=SLOW_SECONDS)
            if completed is None:
                _report_wait(waits_for, timeout)
                timeout = None if timeout is None else timeout - SLOW_SECONDS
        try:
            completed = completed or self._results.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        return completed.get()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended, or for `timeout` seconds."""
        self._thread.join(timeout)


def _cancel() -> NoReturn:
    from concurrent.futures import CancelledError  # imports logging

    raise CancelledError


def map_parallel(
    call: Callable[[T], R], items: Sequence[T], *, threads: int, name: str, stop: threading.Event | None = None
) -> list[R]:
    """Return the result of the call for each item, in order, from at most `threads` daemon threads.

    After an exception no further call starts, and this function raises the first exception. With `stop`, it first sets this
    event, which the running calls must check, and waits until they have returned. If the caller sets `stop`, CancelledError is
    raised.
    """
    pending = queue.SimpleQueue[tuple[int, T]]()
    completed = queue.SimpleQueue[tuple[int, _Result[R]]]()
    for pair in enumerate(items):
        pending.put(pair)
    cancelled = stop or threading.Event()

    def work() -> None:
        while True:
            try:
                index, item = pending.get_nowait()
            except queue.Empty:
                return
            completed.put((index, _Result(_cancel if cancelled.is_set() else partial(call, item))))

    workers = [threading.Thread(target=work, name=f"kfjob-{name}", daemon=True) for _ in range(min(threads, len(items)))]
    for worker in workers:
        worker.start()
    try:
        results = {index: result.get() for index, result in (completed.get() for _ in items)}
    except Exception:
        cancelled.set()
        if stop:
            for worker in workers:
                worker.join()
        raise
    finally:
        cancelled.set()
    return [results[index] for index in range(len(items))]
