"""Staging folders of submits: `.<random>` in a namespace's folder, with a lock that its submit holds as long as it runs."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".staging-"
_LOCK = ".lock"


@contextmanager
def open_staging(namespace: Path) -> Iterator[Path]:
    """Yield an empty folder in the namespace's folder, and remove it afterwards."""
    while True:
        staging = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=namespace))
        if (lock := _lock(staging, fcntl.LOCK_EX)) is not None:
            break
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        os.close(lock)


def remove_stale(namespace: Path) -> None:
    """Remove the staging folders of submits that were killed."""
    try:
        folders = [Path(entry) for entry in os.scandir(namespace) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for staging in folders:
        with suppress(OSError):  # its submit runs, or the folder is not this user's
            lock = _lock(staging, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                shutil.rmtree(staging, ignore_errors=True)
                os.close(lock)


def _lock(staging: Path, operation: int) -> int | None:
    """Return a descriptor that holds the folder's lock; None if another process has removed the folder meanwhile.

    Raises:
        OSError: another process holds the lock, and `operation` does not wait; or the file system has no locks.
    """
    path = staging / _LOCK
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, operation)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), path.stat()):
                return lock
    except OSError:
        os.close(lock)
        raise
    os.close(lock)
    return None
