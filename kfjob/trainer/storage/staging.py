"""Temporary folders for uploads, all below one folder of this user. A folder is locked as long as its process lives.

A process that is killed during an upload cannot remove its folder. The next one finds it without a lock, and removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LOCK = "lock"
_open_locks: dict[Path, IO[bytes]] = {}
"""The locks of this process, by folder."""


def open_folder(name: str) -> Path:
    """Return a new empty folder, whose name begins with `name`, and remove those of killed processes.

    Raises:
        OSError: the temporary folder is not writable, or its part for this user belongs to another one.
    """
    parent = Path(tempfile.gettempdir()) / f"kfjob-staging-{os.getuid()}"
    parent.mkdir(mode=0o700, exist_ok=True)
    if parent.is_symlink() or parent.stat().st_uid != os.getuid():
        raise PermissionError(f"`{parent}` belongs to another user")
    with _locked(parent / _LOCK):
        for folder in parent.iterdir():
            if folder.is_dir() and folder not in _open_locks and (lock := _try_lock(folder)):
                shutil.rmtree(folder, ignore_errors=True)
                lock.close()
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
        lock = _try_lock(folder)
    if lock:
        _open_locks[folder] = lock
    (folder / "files").mkdir()
    return folder / "files"


def close_folder(files: Path) -> None:
    """Remove a folder that `open_folder` returned."""
    shutil.rmtree(files.parent, ignore_errors=True)
    if lock := _open_locks.pop(files.parent, None):
        lock.close()


def _try_lock(folder: Path) -> IO[bytes] | None:
    """Return the locked file of a folder; None if a living process has locked it."""
    file = (folder / _LOCK).open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
