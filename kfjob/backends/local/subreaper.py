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
    files = list((_PROC / "self/task").glob("*/children"))  # of each thread
    if not files:
        return _find_children()
    return [int(pid) for file in files for pid in file.read_bytes().split()]


def list_running_children() -> list[int]:
    """Return the children of this process that have not ended."""
    return [pid for pid in list_children() if (fields := _read_stat(pid)) and fields[0] not in (b"Z", b"X")]


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


def _find_children() -> list[int]:
    """Return the children of this process from the list of all processes, which takes long: for kernels without `children`."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if (fields := _read_stat(pid)) and int(fields[1]) == os.getpid()]


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name of the program: state, parent, …; none if the process is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].split()  # the name, in parentheses, may contain anything
