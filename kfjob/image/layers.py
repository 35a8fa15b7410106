"""Pack a folder as a layer of an image: the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from msgspec import Struct

from kfjob.base.errors import BackendError, Refused
from kfjob.image.folder import Entry, Folder
from kfjob.image.registry.uploads import FileBlob

MTIME = 946684800
"""The modification time of every file: the first second of 2000. Zip files, and so wheels, have no times before 1980."""
_COMPRESSION_LEVEL = 6
_FILE_MODE, _EXECUTABLE_MODE, _LINK_MODE = 0o644, 0o755, 0o777


class Layer(Struct, frozen=True, kw_only=True):
    """A packed layer. Its file exists until the `with` block of `pack_layer` ends."""

    blob: FileBlob
    diff_id: str  # digest of the tar before compression


@contextmanager
def pack_layer(folder: Folder, target: str) -> Iterator[Layer]:
    """Pack a folder so that it extracts to the path `target` of the image.

    The layer has no entries for `target` and the folders above it, so they keep their owner and mode. All entries belong to
    root and are world-readable. The bytes depend on this machine's zlib, `diff_id` does not.

    Raises:
        Refused: a file changes while it is read.
        BackendError: the disk is full.
    """
    with ExitStack() as stack:
        try:
            file = Path(stack.enter_context(TemporaryDirectory(prefix="kfjob-layer-"))) / "layer.tar.gz"
            layer = _pack(folder, target.strip("/"), file)
        except OSError as err:  # a file that cannot be read is a Refused already
            raise BackendError("the layer cannot be written", cause=str(err), hint="set TMPDIR to another folder") from err
        yield layer


def _pack(folder: Folder, target: str, file: Path) -> Layer:
    with file.open("wb") as out:
        compressed = _HashingWriter(out)
        with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, compresslevel=_COMPRESSION_LEVEL, mtime=0) as zipped:
            tar = _HashingWriter(zipped)
            _write_tar(folder, target, tar)
    return Layer(blob=FileBlob(digest=compressed.digest, size=compressed.size, file=file), diff_id=tar.digest)


def _write_tar(folder: Folder, target: str, out: _HashingWriter) -> None:
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in folder.entries:
            header = _make_header(entry, target)
            tar.addfile(header, _EntryReader(entry) if entry.kind == "file" else None)


def _make_header(entry: Entry, target: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(f"{target}/{entry.path}" if target else entry.path)
    if Path(header.name).name.startswith(".wh."):
        cause = "in a layer, the prefix `.wh.` marks a file as deleted"
        raise Refused(f"`{entry.source}` would delete a file of the image", cause=cause)
    header.mtime, header.mode = MTIME, _EXECUTABLE_MODE if entry.executable or entry.kind == "folder" else _FILE_MODE
    if entry.kind == "folder":
        header.type = tarfile.DIRTYPE
    elif entry.kind == "link":
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.link_target, _LINK_MODE
    else:
        header.size = entry.size
    return header


class _EntryReader(io.RawIOBase):
    """A file's content for tarfile, which reads exactly the size that the header states."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self._pieces, self._buffer, self._remaining = entry.read_pieces(), b"", entry.size

    def read(self, size: int = -1) -> bytes:
        while len(self._buffer) < size and (piece := next(self._pieces, b"")):
            self._buffer += piece
        part, self._buffer = self._buffer[:size], self._buffer[size:]
        self._remaining -= len(part)
        if not self._remaining:
            next(self._pieces, None)  # raises if the file changed
        return part


class _HashingWriter(io.RawIOBase):
    """Forwards bytes to a stream and computes their digest and size."""

    def __init__(self, out: IO[bytes] | gzip.GzipFile) -> None:
        super().__init__()
        self._out, self._hash, self.size = out, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """The digest of the bytes written so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:  # type: ignore[override]  # tarfile and gzip give bytes
        self._hash.update(data)
        self.size += len(data)
        self._out.write(data)
        return len(data)
