"""The identity of a process: what its number means here, and whether the number still names it.

The kernel gives numbers of ended processes to new ones, and each container has numbers of its own. A signal to a number from a
file may reach any process, so only a process that proves its identity gets one.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, json

from kfjob.backends import folder
from kfjob.base.parsing import ParseError, decode_json, read_document
from kfjob.local.proc import find_pid_namespace, read_start_time


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """One process, also after its end."""

    pid: int
    started: str
    """Start time, in clock ticks since boot on Linux."""
    namespace: str
    """The boot and the PID namespace in which `pid` is valid."""
    host: str

    @property
    def is_here(self) -> bool:
        """Whether `pid` is valid in this process."""
        return self.namespace == find_pid_namespace()

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the process; return False if no process here proves to be this one."""
        if self.pid <= 1 or not self.is_here:
            return False
        handle = _open_handle(self.pid)  # before the proof: a handle never names another process
        try:
            if not self.started or read_start_time(self.pid) != self.started:
                return False
            if handle is None:
                os.kill(self.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            return False
        finally:
            if handle is not None:
                os.close(handle)
        return True


_NOBODY = ProcessIdentity(pid=0, started="", namespace="", host="")


def _open_handle(pid: int) -> int | None:
    """Return a handle of a process; None before Linux 5.3, and if there is no such process."""
    with suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def identify_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(pid=pid, started=read_start_time(pid), namespace=find_pid_namespace(), host=os.uname().nodename)


def write_identity(file: Path, identity: ProcessIdentity) -> None:
    """Write an identity; a reader sees all of it or no file."""
    folder.replace_file(file, json.encode(identity).decode())


def read_identity(file: Path) -> ProcessIdentity | None:
    """Return the identity in a file; None without a file. A file that holds none gives one that no process has."""
    try:
        return decode_json(read_document(file), ProcessIdentity)
    except FileNotFoundError:
        return None
    except (OSError, ParseError):
        return _NOBODY
