"""Find and end the processes of a job, also those that have left their parent, their session and their process group.

`subreaper` ends those that have left their environment, too.

torchrun starts every worker in its own session (torch elastic/multiprocessing/subprocess_handler), so the process group of an
agent does not contain the workers. All of them inherit the environment, which has a variable with the name of their pod.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from kfjob.base.text import plural
from kfjob.local.proc import has_proc, list_children, list_pids, read_environment
from kfjob.local.subreaper import become_subreaper, kill_children

MARK = "KFJOB_LOCAL_POD"
"""Environment variable of every process of a job: `<job uid>/<pod>`."""

_POLL_SECONDS = 0.02
_UNKILLABLE_SECONDS = 5.0
"""Time that a process has to end after SIGKILL; one that stays is stuck in the kernel."""
_SHOWN_PIDS = 8


def exact_prefix(mark: str) -> str:
    """Return the prefix that matches this mark only."""
    return mark + "\0"


def find_marked(prefix: str) -> list[int]:
    """Return the processes whose mark begins with `prefix` (`<job uid>/` for all of a job); none on systems without /proc."""
    return [pid for pid in list_pids() if _has_mark(pid, prefix)]


def kill(groups: Iterable[int], prefix: str) -> None:
    """Send SIGKILL to process groups and to all marked processes, until none of those is left."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + _UNKILLABLE_SECONDS
    while (pids := find_marked(prefix)) and time.monotonic() < deadline:
        for pid in pids:
            _signal_marked(pid, prefix, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def resume(groups: Iterable[int], prefix: str) -> None:
    """Send SIGCONT to process groups and to all marked processes: one that is stopped does not handle SIGTERM."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGCONT)
    for pid in find_marked(prefix):
        _signal_marked(pid, prefix, signal.SIGCONT)


def end_groups(groups: Collection[int], prefix: str, *, grace_seconds: float) -> None:
    """Send SIGTERM to the leaders of process groups, and SIGKILL to all marked processes after the grace time."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(group, signal.SIGTERM)
    resume(groups, prefix)
    _kill_after(groups, prefix, grace_seconds)


def end_marked(prefix: str, *, grace_seconds: float) -> None:
    """Send SIGTERM to all marked processes, and SIGKILL after the grace time."""
    for pid in find_marked(prefix):
        _signal_marked(pid, prefix, signal.SIGTERM)
    resume((), prefix)
    _kill_after((), prefix, grace_seconds)


def _kill_after(groups: Collection[int], prefix: str, grace_seconds: float) -> None:
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and (find_marked(prefix) if has_proc() else any(map(_is_group_alive, groups))):
        time.sleep(_POLL_SECONDS)
    kill(groups, prefix)


def kill_all() -> list[int]:
    """Kill all children, the adopted ones too; return those that still run after a while."""
    return kill_children(timeout=_UNKILLABLE_SECONDS)


def describe_remaining(pids: Sequence[int]) -> str:
    """Return a sentence about processes that still run after SIGKILL."""
    numbers = ", ".join(map(str, pids[:_SHOWN_PIDS])) + (", …" if len(pids) > _SHOWN_PIDS else "")
    return f"{plural(len(pids), 'process', 'processes')} did not end after SIGKILL: {numbers}"


class Reaper:
    """The parent of the supervisor, which ends the agents if the supervisor is killed: it then adopts their orphans."""

    def __init__(self, prefix: str, *, grace_seconds: float, close: list[int]) -> None:
        """Fork; the child returns as the supervisor. The reaper closes the descriptors `close`, which only that may hold."""
        reading, self._writing = os.pipe()
        if not os.fork():
            os.close(reading)
            return
        for fd in (self._writing, *close):
            os.close(fd)
        _reap_agents(reading, prefix, grace_seconds)
        os._exit(0)

    def add(self, group: int) -> None:
        """Add a process group to end."""
        self._send(f"{group}\n")

    def remove(self, group: int) -> None:
        """Remove a process group that has ended: the system may reuse its number."""
        self._send(f"-{group}\n")

    def dismiss(self) -> None:
        """End the reaper: all processes have ended."""
        self._send("done\n")

    def _send(self, word: str) -> None:
        with suppress(BrokenPipeError):
            os.write(self._writing, word.encode())


def _reap_agents(reading: int, prefix: str, grace_seconds: float) -> None:
    os.setsid()
    become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while block := os.read(reading, 4096):  # the pipe closes when the supervisor ends, also if it is killed
        received += block
    words = received.decode().split()
    if "done" not in words:
        groups = {int(word) for word in words if f"-{word}" not in words and not word.startswith("-")}
        if has_proc():  # a group whose leader this process has not adopted has ended, and its number may be in use again
            groups &= set(list_children())
        if groups:
            end_groups(groups, prefix, grace_seconds=grace_seconds)
        else:
            end_marked(prefix, grace_seconds=grace_seconds)
        kill_all()


def _signal_marked(pid: int, prefix: str, number: signal.Signals) -> None:
    """Send a signal to the process if it still has the mark: the kernel may have given its number to another one."""
    with suppress(OSError):  # the process has ended, or it belongs to another user
        handle = os.pidfd_open(pid)
        try:
            if _has_mark(pid, prefix):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_mark(pid: int, prefix: str) -> bool:
    return f"\0{MARK}={prefix}".encode() in b"\0" + read_environment(pid)
