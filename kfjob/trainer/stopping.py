"""Reasons to stop before the last step: a signal, or the time that was given."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNALLED = "signal"
"""The outcome's reason when any rank got one."""


class StopRequest:
    """Whether this rank has been asked to stop. The loop asks all ranks at every step, so one asked is all asked.

    The first SIGTERM or SIGINT is a request; a second SIGINT has its usual effect.
    """

    def __init__(self, max_minutes: float | None) -> None:
        """Begin the time now, and listen."""
        self._deadline = time.monotonic() + max_minutes * 60 if max_minutes else None
        self._max_minutes = max_minutes
        self.signal: signal.Signals | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and self.signal:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)

    @property
    def out_of_time(self) -> bool:
        """Whether `max_minutes` have passed."""
        return self._deadline is not None and time.monotonic() >= self._deadline
