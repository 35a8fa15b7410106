"""The identity of a process, by which another process on the same machine finds out whether it still runs."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process, also after its number is given to another one."""

    host: str
    machine: str
    """The boot id and the PID namespace, in which `pid` is valid; containers of a machine have different ones."""
    pid: int
    started: str
    """The start time in clock ticks since boot; empty where it is unknown."""

    @property
    def state(self) -> Literal["running", "gone", "unknown"]:
        """Whether the process runs; unknown if it belongs to another machine or container."""
        if self.machine != machine_id():
            return "unknown"
        if self.started:
            return "running" if _start_time(self.pid) == self.started else "gone"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            return "running"
        return "running"

    def text(self) -> str:
        """Return all parts as one text."""
        return "-".join(map(str, asdict(self).values()))


def identify_process(pid: int) -> ProcessIdentity:
    """Return the identity of a process of this machine."""
    return ProcessIdentity(host=platform.node(), machine=machine_id(), pid=pid, started=_start_time(pid))


def boot_id() -> str:
    """Return an id that all containers of a machine share on Linux; elsewhere the host name."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else platform.node()


def machine_id() -> str:
    """Return an id of the processes that can see each other.

    Linux gives the number of an ended PID namespace to a new one, so the start time of its first process is a part of the id.
    """
    namespace = Path("/proc/self/ns/pid")
    return f"{boot_id()} {namespace.readlink()} {_start_time(1)}" if namespace.is_symlink() else boot_id()


def find_agent() -> ProcessIdentity:
    """Return torchrun's agent, which has started this process, perhaps through other programs.

    It starts each worker as the leader of a session (torch 2.11 distributed/elastic subprocess_handler.py).
    """
    leader = os.getsid(0)
    parent = _stat_fields(leader)[1:2] if leader != os.getpid() else []
    return identify_process(int(parent[0]) if parent else os.getppid())


def _start_time(pid: int) -> str:
    """Return field 22 of Linux' `/proc/PID/stat`; empty if the process is gone, a zombie, or not on Linux."""
    fields = _stat_fields(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _stat_fields(pid: int) -> list[str]:
    """Return the fields of Linux' `/proc/PID/stat` from the third, the state; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
