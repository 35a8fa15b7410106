"""A launch in one file: the folder of `backends.folder` as a `.tar.gz`. What others send is unpacked within limits."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any, cast

from kfjob.backends.saved_logs import MAX_UNPACKED_BYTES
from kfjob.base.errors import UsageError
from kfjob.base.file_access import open_private
from kfjob.base.units import MIB

ENDINGS = (".tar.gz", ".tgz")
MAX_FILES = 20_000
"""Files of a bundle: a job of 5000 pods has two logs for each."""


def is_bundle(path: Path) -> bool:
    """Return whether a path is a file with the name of a bundle."""
    return path.name.endswith(ENDINGS) and path.is_file()


def pack(folder: Path, file: Path) -> None:
    """Write the files of a folder to a `.tar.gz` that only its owner may read, without the names of users.

    Raises:
        OSError: the file cannot be written.
    """
    staged = file.with_name(f".{file.name}.part")
    staged.unlink(missing_ok=True)
    try:
        with open_private(staged, "xb") as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    tar.add(path, f"{folder.name}/{path.relative_to(folder)}", filter=_forget_owner)
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)


def _forget_owner(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def unpack(file: Path, parent: Path) -> Path:
    """Unpack a bundle into the folder `parent`, and return the folder of the launch or of the logs in it.

    Only regular files are unpacked, inside the folder (tarfile's filter `data`).

    Raises:
        UsageError: the file is no archive, is damaged, leads out of the folder, or is larger than the limits.
    """
    folder = Path(tempfile.mkdtemp(dir=parent)) / (file.name.partition(".")[0] or "bundle")
    folder.mkdir()
    try:
        with gzip.open(file) as raw:
            _extract(cast("IO[bytes]", _LimitedReader(raw)), folder)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError) as err:
        hint = "`kfjob archive JOB` writes such a file"
        raise UsageError(f"`{file}` cannot be unpacked", cause=str(err), hint=hint) from err
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def _extract(raw: IO[bytes], folder: Path) -> None:
    size = 0
    with tarfile.open(fileobj=raw, mode="r:") as tar:
        for count, member in enumerate(tar, start=1):
            size += member.size
            if count > MAX_FILES or size > MAX_UNPACKED_BYTES:
                raise ValueError(f"it has more than {MAX_FILES} files or {MAX_UNPACKED_BYTES // MIB} MiB")
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise ValueError(f"`{member.name[:80]}` is not a regular file")
            tar.extract(member, folder, filter="data")


class _LimitedReader:
    """A file that refuses to read much at once: tarfile reads a header of any size into memory."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            ValueError: the size is that of no header and no block.
        """
        if not 0 <= size <= MIB:
            raise ValueError("it has a header that is too large")
        if self._file.tell() > MAX_UNPACKED_BYTES + MAX_FILES * MIB:
            raise ValueError("it is too large")
        return cast("bytes", self._file.read(size))
