"""The processes of a job, found and ended even where they have left their parent, their session and their process group.

torchrun starts every worker in a session of its own (torch elastic/multiprocessing/subprocess_handler), so the process group of
an agent does not hold them. What stays with all of them is the environment: each carries the name of its pod.
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
"""How long a process that was sent SIGKILL may still be seen before it counts as stuck in the kernel."""
_PROC = Path("/proc")


def exactly(mark: str) -> str:
    """The prefix that only this very mark begins with."""
    return mark + "\0"


def marked(prefix: str) -> list[int]:
    """Processes whose mark begins with `prefix`; `<job uid>/` begins all of a job's. Elsewhere than on Linux: none."""
    wanted = f"\0{MARK}={prefix}".encode()
    return [pid for pid in _pids() if wanted in b"\0" + _environment(pid)]


def kill(groups: Iterable[int], prefix: str) -> None:
    """SIGKILL to process groups and to everything marked, until nothing marked is left."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + _UNKILLABLE_SECONDS
    while (found := marked(prefix)) and time.monotonic() < deadline:
        _signal(found, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def end(groups: Collection[int], prefix: str, *, grace_seconds: float) -> None:
    """SIGTERM to the agents (to everything marked, where their groups are not known), SIGKILL after the grace time."""
    _signal(groups or marked(prefix), signal.SIGTERM)
    deadline = time.monotonic() + grace_seconds
    while time.monotonic() < deadline and (marked(prefix) if _PROC.is_dir() else any(map(_group_lives, groups))):
        time.sleep(_POLL_SECONDS)
    kill(groups, prefix)


class Guard:
    """A process that outlives its supervisor for a moment: when that was killed, it ends the agents."""

    def __init__(self, prefix: str, *, grace_seconds: float, close: list[int]) -> None:
        """Fork it. `close` are file descriptors that only the supervisor may hold."""
        reading, self._writing = os.pipe()
        if os.fork():
            os.close(reading)
            return
        for fd in (self._writing, *close):
            os.close(fd)
        _guard(reading, prefix, grace_seconds)
        os._exit(0)

    def started(self, group: int) -> None:
        """Another process group to end."""
        self._tell(f"{group}\n")

    def ended(self, group: int) -> None:
        """The number of this process group may be another's from now on."""
        self._tell(f"-{group}\n")

    def dismiss(self) -> None:
        """Nothing is left to guard."""
        self._tell("done\n")

    def _tell(self, word: str) -> None:
        with suppress(BrokenPipeError):
            os.write(self._writing, word.encode())


def _guard(reading: int, prefix: str, grace_seconds: float) -> None:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = b""
    while block := os.read(reading, 4096):  # ends when the supervisor does, however it does
        told += block
    words = told.decode().split()
    if "done" not in words:
        groups = {word for word in words if f"-{word}" not in words and not word.startswith("-")}
        end({int(group) for group in groups}, prefix, grace_seconds=grace_seconds)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _pids() -> Iterator[int]:
    if _PROC.is_dir():
        names = [entry.name for entry in _PROC.iterdir()]
        yield from (int(name) for name in names if name.isdecimal() and int(name) != os.getpid())


def _environment(pid: int) -> bytes:
    with suppress(OSError):
        return (_PROC / str(pid) / "environ").read_bytes()
    return b""
