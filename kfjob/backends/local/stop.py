"""End the processes of a job for `stop`: through its supervisor, or directly if that is dead."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.backends.local import launch_spec, processes
from kfjob.backends.local.cgroup import Cgroup
from kfjob.backends.local.launch import is_supervised
from kfjob.backends.local.state import read_stopped
from kfjob.backends.local.supervisor import GROUP, PID, REMAINING
from kfjob.errors import BackendError, WaitTimeout

_POLL_SECONDS = 0.02
_KILL_SECONDS = 5.0
"""Time that killed processes have to end; only one that waits for a device takes so long."""
_SIGNAL_SECONDS = 1.0
"""Time between two signals to a supervisor that has to end its job."""


def end_processes(launch: Path, ref: JobRef, *, timeout: float) -> str:
    """End all processes of a launch, and write its final state; return a sentence about processes that remain, or "".

    Raises:
        WaitTimeout: the processes still use their grace time after `timeout` seconds.
        BackendError: the final state cannot be written.
    """
    was_supervised = is_supervised(launch)
    _end_supervisor(launch, ref, time.monotonic() + timeout)
    _end_leftovers(launch, was_supervised=was_supervised)
    return _read_run_file(launch, REMAINING) if was_supervised else ""


def _end_supervisor(launch: Path, ref: JobRef, deadline: float) -> None:
    """Send SIGTERM to the supervisor, and wait until it has ended all processes."""
    next_signal = 0.0
    while is_supervised(launch):
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            if time.monotonic() >= next_signal:  # again: a supervisor that gets very many signals may lose one
                os.kill(int((launch / folder.RUN / PID).read_text(encoding="ascii")), signal.SIGTERM)
                next_signal = time.monotonic() + _SIGNAL_SECONDS
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"job `{ref.name}` has not ended in time",
                cause="its processes received SIGTERM and may still use their grace time",
                hint=f"run `kfjob stop {ref.name}` again to wait longer",
            )
        time.sleep(_POLL_SECONDS)


def _end_leftovers(launch: Path, *, was_supervised: bool) -> None:
    """End processes that a killed supervisor has left, and write the job's final state if the supervisor could not."""
    with suppress(FileNotFoundError):
        spec = launch_spec.read(launch)
        mark = f"{spec.uid}/"
        if processes.find_marked(mark):
            processes.end([], mark, grace_seconds=spec.grace_seconds)
    if path := _read_run_file(launch, GROUP):
        group = Cgroup(Path(path), home=Path(path).parent)
        group.kill()
        group.remove(timeout=_KILL_SECONDS)
    snapshot = read_stopped(launch, was_supervised=was_supervised)
    if snapshot is None or snapshot == folder.read_snapshot(launch):
        return
    try:
        folder.write_snapshot(launch, snapshot)
    except OSError as err:
        raise BackendError(
            f"the final state of job `{launch.parent.name}` cannot be written",
            cause=str(err),
            hint=f"free space on the disk, then run `kfjob stop {launch.parent.name}` again",
        ) from err


def _read_run_file(launch: Path, name: str) -> str:
    """Return the text of a file that the supervisor has written; "" without one."""
    with suppress(OSError):
        return (launch / folder.RUN / name).read_text(encoding="utf-8")
    return ""
