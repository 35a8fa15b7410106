"""Reasons to stop before the last step: a signal, or the time limit."""

from __future__ import annotations

import signal
import time
from types import FrameType

SIGNAL_REASON = "signal"
"""The outcome's reason if any rank received a signal."""


class StopRequest:
    """Whether this rank should stop. The loop asks all ranks at every step, so a request to one rank stops all.

    The first SIGTERM or SIGINT is a request; a second SIGINT has its usual effect.
    """

    def __init__(self, max_minutes: float | None) -> None:
        """Start the time limit and install the signal handlers."""
        self._deadline = time.monotonic() + max_minutes * 60 if max_minutes else None
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
