"""Create files for their owner alone, and tell who else can change a file or a folder."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

PRIVATE = 0o600
OTHER_OWNER = "it belongs to another user"


@contextmanager
def name_file(file: Path | str) -> Iterator[None]:
    """Give every OSError of the block the name of the file: that of a failed `write` has none."""
    try:
        yield
    except OSError as err:
        if err.filename is None:
            err.filename = str(file)
        raise


def open_private(file: Path, mode: str, *, buffering: int = -1, encoding: str | None = None) -> IO[Any]:
    """Open a file as `open` does. Only its owner may read a new file, with any umask.

    Raises:
        OSError: as `open`.
    """
    return open(file, mode, buffering=buffering, encoding=encoding, opener=_open)


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file for reading. A FIFO would wait for its writer, and a device has no end.

    Raises:
        OSError: the file is not regular, or cannot be read.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    raise OSError(errno.EINVAL, "not a regular file", str(file))


def _open(file: str, flags: int) -> int:
    return os.open(file, flags, PRIVATE)


def find_foreign_access(status: os.stat_result) -> str:
    """Return why somebody but the user and root can change a file or folder, "" if nobody can.

    A folder with the sticky bit passes: others may add files there, and cannot touch those of its owner.
    """
    users = {0, os.getuid()}
    if os.getuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        users.add(int(os.environ["SUDO_UID"]))
    if status.st_uid not in users:
        return OTHER_OWNER
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return ""
    is_shared = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid))
    return "other users may write it" if is_shared else ""


def _is_private_group(gid: int) -> bool:
    """Return whether nobody else is in a group: root's, and the group of one user that many systems create."""
    if gid == 0:
        return True
    if gid != os.getgid():
        return False
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:  # a container has no entry
        return True
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}
