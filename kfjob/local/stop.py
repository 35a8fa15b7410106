"""End the processes of a job for `stop`: through its supervisor, or directly if that is dead."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

from kfjob.backends import folder
from kfjob.backends.base import JobRef
from kfjob.base.errors import BackendError, WaitTimeout
from kfjob.base.parsing import read_document
from kfjob.local import launch_spec, processes, temporary
from kfjob.local.identity import ProcessIdentity, read_identity
from kfjob.local.launch import LOCK, is_supervised
from kfjob.local.launch_spec import IDENTITY, REMAINING, STOP
from kfjob.local.state import read_stopped

_POLL_SECONDS = 0.02
_SIGNAL_SECONDS = 1.0
"""Time between two signals to a supervisor that has to end its job."""


def end_processes(launch: Path, ref: JobRef, *, timeout: float) -> str:
    """End all processes of a launch, and write its final state; return a sentence about processes that remain, or "".

    Raises:
        WaitTimeout: the processes still use their grace time after `timeout` seconds.
        BackendError: the supervisor is no process of this machine or container, or the final state cannot be written.
    """
    was_supervised = is_supervised(launch)
    _end_supervisor(launch, ref, time.monotonic() + timeout)
    _end_leftovers(launch, ref, was_supervised=was_supervised)
    return _read_run_file(launch, REMAINING) if was_supervised else ""


def _end_supervisor(launch: Path, ref: JobRef, deadline: float) -> None:
    """Send SIGTERM to the supervisor, and wait until it has ended all processes."""
    with suppress(OSError):  # the disk is full, or the folder is gone: only the message of the final state differs
        (launch / folder.RUN / STOP).touch()
    next_signal = 0.0
    while is_supervised(launch):
        if time.monotonic() >= next_signal and (supervisor := read_identity(launch / folder.RUN / IDENTITY)):
            if not supervisor.send(signal.SIGTERM) and is_supervised(launch):
                raise _make_unproven(launch, ref, supervisor)
            supervisor.send(signal.SIGCONT)  # it may be stopped
            next_signal = time.monotonic() + _SIGNAL_SECONDS  # again: a supervisor that gets very many signals may lose one
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"job `{ref.name}` has not ended in time",
                cause="its processes received SIGTERM and may still use their grace time",
                hint=f"run `kfjob stop {ref.name}` again to wait longer",
            )
        time.sleep(_POLL_SECONDS)


def _make_unproven(launch: Path, ref: JobRef, supervisor: ProcessIdentity) -> BackendError:
    """Return the error for a supervisor that runs, but is not the process that its file names here."""
    if supervisor.pid > 1 and not supervisor.is_here:
        return BackendError(
            f"the supervisor of job `{ref.name}` runs elsewhere",
            cause=f"it is process {supervisor.pid} of `{supervisor.host}`, on another machine or in another container",
            hint=f"run `kfjob stop {ref.name}` there",
        )
    lock = launch / folder.RUN / LOCK
    return BackendError(
        f"the supervisor of job `{ref.name}` cannot be identified",
        location=str(launch / folder.RUN / IDENTITY),
        cause="the file does not name the process that holds the lock of the job",
        hint=f"`fuser {lock}` shows that process; `kill PID` ends it with the job",
    )


def _end_leftovers(launch: Path, ref: JobRef, *, was_supervised: bool) -> None:
    """End processes that a killed supervisor has left, and write the job's final state if the supervisor could not."""
    with suppress(FileNotFoundError):
        spec = launch_spec.read(launch)
        mark = f"{ref.uid}/"
        if processes.find_marked(mark):
            processes.end_marked(mark, grace_seconds=spec.grace_seconds)
    temporary.remove_folders(launch, uid=ref.uid)
    snapshot = read_stopped(launch, was_supervised=was_supervised)
    if snapshot is None or snapshot == folder.read_snapshot(launch):
        return
    try:
        folder.write_snapshot(launch, snapshot)
    except FileNotFoundError:  # another command has archived the launch in the meantime
        return
    except OSError as err:
        raise BackendError(
            f"the final state of job `{launch.parent.name}` cannot be written",
            cause=str(err),
            hint=f"free space on the disk, then run `kfjob stop {launch.parent.name}` again",
        ) from err


def _read_run_file(launch: Path, name: str) -> str:
    """Return the text of a file that the supervisor has written; "" without one."""
    with suppress(OSError, ValueError):
        return read_document(launch / folder.RUN / name).decode()
    return ""
