"""Find and end the processes of a job, also those that have left their parent, their session and their process group.

torchrun starts every worker in its own session (torch elastic/multiprocessing/subprocess_handler), so the process group of an
agent does not contain the workers. All of them inherit the environment, which has a variable with the name of their pod.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

MARK = "KFJOB_LOCAL_POD"
"""Environment variable of every process of a job: `<job uid>/<pod>`."""

_POLL_SECONDS = 0.02
_UNKILLABLE_SECONDS = 5.0
"""Time after SIGKILL until a process counts as stuck in the kernel."""
_PROC = Path("/proc")


def exact_prefix(mark: str) -> str:
    """Return the prefix that matches this mark only."""
    return mark + "\0"


def find_marked(prefix: str) -> list[int]:
    """Return the processes whose mark begins with `prefix` (`<job uid>/` for all of a job); none on systems without /proc."""
    variable = f"\0{MARK}={prefix}".encode()
    return [pid for pid in _list_pids() if variable in b"\0" + _read_environment(pid)]


def kill(groups: Iterable[int], prefix: str) -> None:
    """Send SIGKILL to process groups and to all marked processes, until none of those is left."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + _UNKILLABLE_SECONDS
    while (pids := find_marked(prefix)) and time.monotonic() < deadline:
        _send_signal(pids, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def end(groups: Collection[int], prefix: str, *, grace_seconds: float) -> None:
    """Send SIGTERM to the agents (without `groups`: to all marked processes), and SIGKILL after the grace time."""
    _send_signal(groups or find_marked(prefix), signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and (find_marked(prefix) if _PROC.is_dir() else any(map(_is_group_alive, groups))):
        time.sleep(_POLL_SECONDS)
    kill(groups, prefix)


class Guard:
    """A forked process that ends the agents if the supervisor is killed."""

    def __init__(self, prefix: str, *, grace_seconds: float, close: list[int]) -> None:
        """Fork the guard. It closes the file descriptors `close`, which only the supervisor may hold."""
        reading, self._writing = os.pipe()
        if os.fork():
            os.close(reading)
            return
        for fd in (self._writing, *close):
            os.close(fd)
        _guard(reading, prefix, grace_seconds)
        os._exit(0)

    def add(self, group: int) -> None:
        """Add a process group to end."""
        self._send(f"{group}\n")

    def remove(self, group: int) -> None:
        """Remove a process group that has ended: the system may reuse its number."""
        self._send(f"-{group}\n")

    def dismiss(self) -> None:
        """End the guard: all processes have ended."""
        self._send("done\n")

    def _send(self, word: str) -> None:
        with suppress(BrokenPipeError):
            os.write(self._writing, word.encode())


def _guard(reading: int, prefix: str, grace_seconds: float) -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while block := os.read(reading, 4096):  # the pipe closes when the supervisor ends, also if it is killed
        received += block
    words = received.decode().split()
    if "done" not in words:
        groups = {word for word in words if f"-{word}" not in words and not word.startswith("-")}
        end({int(group) for group in groups}, prefix, grace_seconds=grace_seconds)


def _send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _list_pids() -> Iterator[int]:
    if _PROC.is_dir():
        names = [entry.name for entry in _PROC.iterdir()]
        yield from (int(name) for name in names if name.isdecimal() and int(name) != os.getpid())


def _read_environment(pid: int) -> bytes:
    with suppress(OSError):
        return (_PROC / str(pid) / "environ").read_bytes()
    return b""
