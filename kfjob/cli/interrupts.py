"""What Ctrl-C, SIGTERM and SIGHUP do. This module is the first that the program imports, so it imports next to nothing.

An exception that a signal raises during an import can come in a callback of the interpreter, which prints and drops it. So a
signal ends the process at once where nothing needs a cleanup, and raises an exception only while a command runs.
"""

from __future__ import annotations

import os
import signal
import sys

_BASE = 128  # as `exit_codes.SIGNAL_BASE`, which is a module more
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
            return _BASE + signal.SIGINT
        chain += [link.__context__, link.__cause__]
    return _BASE + _received[0] if _received else None


def drop_interrupts() -> None:
    """Let the interpreter print nothing about an interruption in a callback; the thread of `signals` ends the command."""
    sys.unraisablehook = _print_others


def _print_others(unraisable: sys.UnraisableHookArgs) -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _end(number: int, _frame: object) -> None:
    os._exit(_BASE + number)


def _exit(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    _received.append(number)
    raise SystemExit(_BASE + number)


_HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: _exit, getattr(signal, "SIGHUP", signal.SIGTERM): _exit}
"""Signals that end a command, each with its handler while the command runs."""
