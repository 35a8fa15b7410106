"""Reasons to stop before the last step: a signal, or the time limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kfjob.trainer.distributed import Ranks

SIGNAL_REASON = "signal"
"""The outcome's reason if any rank received a signal."""
SECOND_SIGNAL_SECONDS = 5.0
"""Time after a signal in which another one is the same request: a launcher passes on what its ranks have received, too."""


class StopRequest:
    """Whether this rank should stop. The loop asks all ranks before every micro-batch, so a request to one rank stops all.

    The first SIGTERM or SIGINT is a request; a second SIGINT has its usual effect. A signal before the first step, and another
    one `SECOND_SIGNAL_SECONDS` after the first, must end the process at once: see `must_end_at_once`.
    """

    has_begun = False
    """Whether the first step has begun, so that a stop has something to save."""

    def __init__(self, max_minutes: float | None) -> None:
        """Start the time limit and install the signal handlers."""
        self._max_minutes = max_minutes
        self._deadline = time.monotonic() + max_minutes * 60 if max_minutes else None
        self.signal: signal.Signals | None = None
        self._first_signal: float | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and self.signal:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)

    def must_end_at_once(self, *, clock: Callable[[], float] = time.monotonic) -> bool:
        """Note a signal, and return whether the process ends now: nothing is lost, or this is a second request.

        A rank may wait for a peer that is stopped, and then does not return to the loop.
        """
        now = clock()
        if self._first_signal is None:
            self._first_signal = now
        return not self.has_begun or now - self._first_signal >= SECOND_SIGNAL_SECONDS

    @property
    def out_of_time(self) -> bool:
        """Whether `max_minutes` have passed."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def ask(self, ranks: Ranks) -> str | None:
        """Return the reason for which all ranks stop now, or None; every rank calls it."""
        signals, out_of_time = ranks.all_reduce([self.signal is not None, self.out_of_time])
        if signals:
            return SIGNAL_REASON
        return f"max_minutes {self._max_minutes:g}" if out_of_time else None


@contextmanager
def end_on_signal(end: Callable[[int], None]) -> Iterator[None]:
    """Call `end` with the number of a SIGTERM or SIGINT that arrives in the block, in another thread.

    A call into torch that waits for other ranks keeps Python from running the handler of a signal.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def watch() -> None:
        while number := os.read(reading, 1):
            if number[0] in (signal.SIGTERM, signal.SIGINT):
                end(number[0])

    previous = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        os.close(writing)
        thread.join()
        os.close(reading)
