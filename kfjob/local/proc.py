"""Linux' /proc: processes, their parents and environments, and the counters of the kernel. Other systems have none of it.

Only the identity of a process has another source there: `ps`, and the name of the host.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_ROOT = Path("/proc")
_ENDED = (b"Z", b"X")
"""States of a process that has ended and was not waited for."""
_PS_SECONDS = 10
"""Timeout of `ps`, on systems without /proc."""


def has_proc() -> bool:
    """Return whether the system has /proc."""
    return _ROOT.is_dir()


def list_pids() -> list[int]:
    """Return all processes but this one."""
    if not has_proc():
        return []
    return [int(entry.name) for entry in _ROOT.iterdir() if entry.name.isdecimal() and int(entry.name) != os.getpid()]


def list_children(parent: int = 0) -> list[int]:
    """Return the children of a process (0: this one), also those that have ended and were not waited for."""
    if not has_proc():
        return []
    parent = parent or os.getpid()
    files = list((_ROOT / str(parent) / "task").glob("*/children"))  # of each thread
    if files:
        return [int(pid) for file in files for pid in file.read_bytes().split()]
    # the kernel is built without `children`: the list of all processes has the same answer, and takes long
    return [pid for pid in list_pids() if (fields := _read_stat(pid)) and int(fields[1]) == parent]


def list_running_children(parent: int = 0) -> list[int]:
    """Return the children of a process (0: this one) that have not ended."""
    return [pid for pid in list_children(parent) if (fields := _read_stat(pid)) and fields[0] not in _ENDED]


def read_environment(pid: int) -> bytes:
    """Return the environment of a process, each variable with a zero byte at its end; empty if it is gone or hidden."""
    with suppress(OSError):
        return (_ROOT / str(pid) / "environ").read_bytes()
    return b""


def read_start_time(pid: int) -> str:
    """Return when a process started, in clock ticks since boot on Linux (field 22 of proc_pid_stat(5)); "" if it is gone."""
    if has_proc():
        fields = _read_stat(pid)
        return fields[19].decode() if fields and fields[0] not in _ENDED else ""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=_PS_SECONDS, check=True
        ).stdout.strip()
    return ""


def find_pid_namespace() -> str:
    """Return an id of the processes that can signal each other by number: the boot and the PID namespace on Linux."""
    with suppress(OSError):
        boot = (_ROOT / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {(_ROOT / 'self/ns/pid').readlink()}"
    return os.uname().nodename


def _find_cgroup_folder(controller: str = "") -> Path | None:
    """Return the folder of the control group of this process; None without version 2 of control groups.

    With the name of a controller it is the group of version 1 that has it.
    """
    with suppress(OSError, ValueError):
        for line in (_ROOT / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controller not in controllers.split(","):
                continue
            for mount, root in _list_cgroup_mounts(controller):
                if PurePosixPath(path).is_relative_to(root):
                    return mount / PurePosixPath(path).relative_to(root)
    return None


def _list_cgroup_mounts(controller: str = "") -> Iterator[tuple[Path, str]]:
    """Yield the folders where control groups of version 2 are mounted, or those of version 1 with a controller.

    Each comes with the group that stands there.
    """
    for line in (_ROOT / "self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, system = line.partition(" - ")
        root, mount = fields.split()[3:5]
        kind, _, options = system.split(maxsplit=2)
        if (kind == "cgroup" and controller in options.split(",")) if controller else kind == "cgroup2":
            yield Path(mount), root


def count_out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed so far because memory ran out; 0 before Linux 4.13.

    They are those of this process's control group, with the groups in it in version 2: other users and containers of the
    machine have theirs. Without control groups of memory they are those of the whole machine.
    """
    group, old_group = _find_cgroup_folder(), _find_cgroup_folder("memory")
    files = [group and group / "memory.events", old_group and old_group / "memory.oom_control", _ROOT / "vmstat"]
    for file in filter(None, files):
        with suppress(OSError, ValueError):
            for line in file.read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name of the program: state, parent, …; none if the process is gone."""
    try:
        text = (_ROOT / str(pid) / "stat").read_bytes()
    except OSError:
        return []
    return text.rpartition(b")")[2].split()  # the name, in parentheses, may contain anything
