"""What Ctrl-C does. This module is the first that the program imports, so it imports next to nothing."""

from __future__ import annotations

import os
import signal

_EXIT_CODE = 130


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, without a traceback: where nothing needs a cleanup, as during imports."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background of a script ignores SIGINT
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the main thread again, so that a command cleans up."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: object) -> None:
    os._exit(_EXIT_CODE)
