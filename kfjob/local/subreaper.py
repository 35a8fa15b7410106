"""Adopt the processes that leave their parents, and end them.

A daemon forks twice, starts a session and may clean its environment: neither a process group nor a variable identifies it. The
kernel gives it to the nearest ancestor that is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER). Only own children are signalled:
the kernel cannot reuse the number of a child before its parent has waited for it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress

from kfjob.local.proc import list_children, list_running_children

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02


def become_subreaper() -> bool:
    """Let the kernel give orphaned descendants to this process; return False on systems other than Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def reap_orphans(keep: Collection[int]) -> None:
    """Wait for adopted children that have ended, but not for those in `keep`, whose exit codes are still needed."""
    for pid in list_children():
        if pid not in keep:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_children(*, timeout: float) -> list[int]:
    """Kill all children, then the children that these leave; return those that still run when the time (seconds) is over.

    A child that forks and ends at once is a new child of this process each time. So nothing here waits between two rounds as
    long as there is a child that has not ended: SIGKILL has to arrive before the next fork.
    """
    deadline = time.monotonic() + timeout
    killed: frozenset[int] = frozenset()
    while pids := frozenset(list_children()):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap_orphans(())
        if time.monotonic() >= deadline:
            return list_running_children()
        if pids == killed:  # the kernel still ends them
            time.sleep(_POLL_SECONDS)
        killed = pids
    return []
