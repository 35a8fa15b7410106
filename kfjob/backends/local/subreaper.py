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
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")
_POLL_SECONDS = 0.02


def become_subreaper() -> bool:
    """Let the kernel give orphaned descendants to this process; return False on systems other than Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def list_children() -> list[int]:
    """Return the children of this process, also those that have ended and were not waited for; none without /proc."""
    if not _PROC.is_dir():
        return []
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if _read_parent(pid) == os.getpid()]


def reap_orphans(keep: Collection[int]) -> None:
    """Wait for adopted children that have ended, but not for those in `keep`, whose exit codes are still needed."""
    for pid in list_children():
        if pid not in keep:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill_children(*, timeout: float) -> None:
    """Kill all children, then the children that these leave, until none is left or the time (seconds) is over."""
    deadline = time.monotonic() + timeout
    while (pids := list_children()) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap_orphans(())
        time.sleep(_POLL_SECONDS)


def _read_parent(pid: int) -> int | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return int(text.rpartition(b")")[2].split()[1])  # the name of the program, in parentheses, may contain anything
