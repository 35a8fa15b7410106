"""The control group of a job: SIGKILL for every process in it at one moment, also for those that fork all the time.

A process stays in its control group when it leaves its parent, its session and its environment. Linux 5.14 and newer can kill
a whole group (Documentation/admin-guide/cgroup-v2.rst, `cgroup.kill`). A user can make groups where the system delegates one,
for example under systemd's `user@.service`, or has mounted them writable. Elsewhere `subreaper` ends the processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kfjob.local.proc import find_cgroup_folder, is_cgroup_folder

_MEMBERS = "cgroup.procs"
_KILL = "cgroup.kill"
_POLL_SECONDS = 0.02
_SELF = "0"
"""Stands for the writing process in `cgroup.procs`."""


class Cgroup:
    """A control group below `home`, the group of the process that made it."""

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self._home = home
        self._is_left = True

    def make_group(self, name: str) -> Cgroup | None:
        """Return a new group inside this one; None if it cannot be made."""
        return _make(self.path / name, self._home)

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be in the group inside the `with` block, so that the children that start there are, too."""
        try:
            (self.path / _MEMBERS).write_text(_SELF, encoding="ascii")
        except OSError:
            yield
            return
        self._is_left = False
        try:
            yield
        finally:
            with suppress(OSError):
                (self._home / _MEMBERS).write_text(_SELF, encoding="ascii")
                self._is_left = True

    def kill(self) -> None:
        """Send SIGKILL to all processes of the group and of the groups in it, unless this process is one of them."""
        if self._is_left:
            with suppress(OSError):
                (self.path / _KILL).write_text("1", encoding="ascii")

    def remove(self, *, timeout: float = 0) -> None:
        """Remove the group and the groups in it; wait at most `timeout` seconds until their processes have ended."""
        deadline = time.monotonic() + timeout
        while self.path.exists():
            for folder, _, _ in os.walk(self.path, topdown=False):
                with suppress(OSError):  # a process in it has not ended
                    Path(folder).rmdir()
            if time.monotonic() >= deadline:
                return
            time.sleep(_POLL_SECONDS)


def get_name(uid: str) -> str:
    """Return the name of a job's group."""
    return f"kfjob-{uid}"


def open_cgroup(path: Path, *, uid: str) -> Cgroup | None:
    """Return the group of a job at a path from a file; None if that is no group, another one, or holds us."""
    home = find_cgroup_folder()
    if not uid or path.name != get_name(uid) or not is_cgroup_folder(path) or (home and home.is_relative_to(path)):
        return None
    return Cgroup(path, home=path.parent)


def make_cgroup(name: str) -> Cgroup | None:
    """Return a new group below that of this process; None where the system gives this user none."""
    home = find_cgroup_folder()
    return _make(home / name, home) if home else None


def _make(path: Path, home: Path) -> Cgroup | None:
    with suppress(OSError):
        path.mkdir(exist_ok=True)
        if os.access(path / _KILL, os.W_OK):
            return Cgroup(path, home)
        path.rmdir()
    return None
