"""What Ctrl-C, SIGTERM and SIGHUP do. This module is the first that the program imports, so it imports next to nothing.

An exception that a signal raises during an import can come in a callback of the interpreter, which prints and drops it. So a
signal ends the process at once where nothing needs a cleanup, and raises an exception only while a command runs.

Python runs signal handlers between two instructions of the main thread. A name server that does not answer keeps this thread
inside the C library (getaddrinfo). So a second thread gets each signal from a pipe, and ends a command that goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress

INTERRUPTED = 130
"""The exit code after Ctrl-C; a followed job continues."""
SIGNAL_BASE = 128
"""The exit code after a signal, less its number."""
CLEANUP_SECONDS = 0.8
"""Time that an interrupted command has to delete what it has created in part, and its temporary files."""
_received: list[int] = []


def end_on_interrupt() -> None:
    """Let the signals end the process at once, without a traceback: during imports, and after a command."""
    for number, raising in _HANDLERS.items():
        if signal.getsignal(number) in (raising, signal.SIG_DFL):  # in the background of a script SIGINT is ignored
            signal.signal(number, _end)


def raise_on_interrupt() -> None:
    """Let the signals raise KeyboardInterrupt or SystemExit in the main thread, so that a command cleans up."""
    for number, raising in _HANDLERS.items():
        if signal.getsignal(number) is _end:
            signal.signal(number, raising)


def find_interrupt(err: BaseException) -> int | None:
    """Return the exit code of the interruption that has led to an error: of a library that a signal met; None without one."""
    chain: list[BaseException | None] = [err]
    seen: set[int] = set()
    while chain:
        link = chain.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if isinstance(link, KeyboardInterrupt):
            return INTERRUPTED
        chain += [link.__context__, link.__cause__]
    return SIGNAL_BASE + _received[0] if _received else None


def _print_others(unraisable: sys.UnraisableHookArgs) -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _end(number: int, _frame: object) -> None:
    os._exit(SIGNAL_BASE + number)


def _exit(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    _received.append(number)
    raise SystemExit(SIGNAL_BASE + number)


def limit_cleanup() -> None:
    """Start the thread that ends a command some time after a signal."""
    import threading

    sys.unraisablehook = _print_others  # nothing about an interruption in a callback: the thread ends the command
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_end_late, args=(reading,), name="kfjob-signals", daemon=True).start()


def _end_late(pipe: int) -> None:
    """Wait for a signal that ends the command, then end it if it still runs after its time for the cleanup."""
    while (number := os.read(pipe, 1)[0]) not in _HANDLERS:
        pass
    time.sleep(CLEANUP_SECONDS)
    if programs := sys.modules.get("kfjob.base.programs"):  # an import could wait for the main thread
        programs.kill_programs()
    if concurrency := sys.modules.get("kfjob.base.concurrency"):
        with suppress(OSError):
            os.write(2, "".join(f"warning: {notice}\n" for notice in concurrency.cleanup_notices).encode())
    os._exit(SIGNAL_BASE + number)


_HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _exit, getattr(signal, "SIGHUP", signal.SIGTERM): _exit}
"""Signals that end a command, each with its handler while the command runs."""
