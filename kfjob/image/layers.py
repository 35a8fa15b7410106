"""A folder as one layer of an image: the same files give the same bytes, whoever packs them and whenever."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from kfjob.errors import BackendError, Refused
from kfjob.image.folder import Entry, Folder
from kfjob.image.registry.uploads import FileBlob

MTIME = 946684800
"""Of every file: the first second of 2000. Zip files, and so wheels that a job builds, know no time before 1980."""
_LEVEL = 6
_FILE, _EXECUTABLE = 0o644, 0o755


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A packed layer, in a file that lives as long as the `with` of `packed`."""

    blob: FileBlob
    diff_id: str  # of the tar before it was compressed


@contextmanager
def pack_layer(folder: Folder, target: str) -> Iterator[Layer]:
    """Pack a folder so that it lies at the path `into` of the image.

    The layer has no entries for `into` itself and the folders above it, so that their owner and rights stay what they are in
    the image. Owners are root, files may be read by all. The bytes depend on this machine's zlib, `diff_id` does not.

    Raises:
        Refused: a file is changed while it is read.
        BackendError: the disk is full.
    """
    with ExitStack() as stack:
        try:
            file = Path(stack.enter_context(TemporaryDirectory(prefix="kfjob-layer-"))) / "layer.tar.gz"
            layer = _packed(folder, target.strip("/"), file)
        except OSError as err:  # of reading, `Folder` speaks itself
            raise BackendError("the layer cannot be written", cause=str(err), hint="TMPDIR names another folder") from err
        yield layer


def _packed(folder: Folder, into: str, file: Path) -> Layer:
    with file.open("wb") as out:
        compressed = _Counted(out)
        with gzip.GzipFile(filename="", mode="wb", fileobj=compressed, compresslevel=_LEVEL, mtime=0) as zipped:
            tar = _Counted(zipped)
            _write(folder, into, tar)
    return Layer(blob=FileBlob(digest=compressed.digest, size=compressed.size, file=file), diff_id=tar.digest)


def _write(folder: Folder, into: str, out: _Counted) -> None:
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in folder.entries:
            header = _header(entry, into)
            tar.addfile(header, _Content(entry) if entry.kind == "file" else None)


def _header(entry: Entry, into: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(f"{into}/{entry.path}" if into else entry.path)
    if Path(header.name).name.startswith(".wh."):
        raise Refused(f"`{entry.source}` would delete a file of the image", cause="names with `.wh.` say so in a layer")
    header.mtime, header.mode = MTIME, _EXECUTABLE if entry.executable or entry.kind == "folder" else _FILE
    if entry.kind == "folder":
        header.type = tarfile.DIRTYPE
    elif entry.kind == "link":
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, entry.link_target, 0o777
    else:
        header.size = entry.size
    return header


class _Content(io.RawIOBase):
    """A file's content, for tarfile, which asks for as much as the header promised and then no more."""

    def __init__(self, entry: Entry) -> None:
        super().__init__()
        self._pieces, self._held, self._left = entry.read_pieces(), b"", entry.size

    def read(self, size: int = -1) -> bytes:
        while len(self._held) < size and (piece := next(self._pieces, b"")):
            self._held += piece
        part, self._held = self._held[:size], self._held[size:]
        self._left -= len(part)
        if not self._left:
            next(self._pieces, None)  # its last word: whether the file stayed what it was
        return part


class _Counted(io.RawIOBase):
    """What is written, and its digest."""

    def __init__(self, out: IO[bytes] | gzip.GzipFile) -> None:
        super().__init__()
        self._out, self._hash, self.size = out, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        """Of all so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:  # type: ignore[override]  # tarfile and gzip give bytes
        self._hash.update(data)
        self.size += len(data)
        self._out.write(data)
        return len(data)
