"""Find saved logs: a file, standard input, or a folder of text files. Compressed logs are unpacked within a limit."""

from __future__ import annotations

import gzip
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from kfjob.backends import folder
from kfjob.backends.combined_log import SAMPLE, find_prefix, is_log_of_one, split_log
from kfjob.base.errors import BackendError, NotFound, UsageError, explain_os_error
from kfjob.base.units import GIB, KIB, MIB

MAX_UNPACKED_BYTES = 4 * GIB
"""Size of all saved logs that are unpacked or read from standard input; the rest is left out."""
STDIN = "-"
_SAMPLE = 8 * KIB
_BINARY = re.compile(rb"[\0-\6\x0e-\x1a\x1c-\x1f]")
"""Control characters that no terminal output has; ESC, backspace and line ends are part of it."""
_OTHER_ENDINGS = (".py", ".sh", ".json", ".yaml", ".yml", ".toml", ".md")
"""Endings of text that is no log."""


class SavedLogs(Struct, weakref=True):
    """The logs of a folder, a file or standard input, by pod."""

    name: str
    logs: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Files that are not read, each with the reason."""
    _unpacked: Path | None = None
    _written: int = 0

    def add_file(self, file: Path) -> None:
        """Add a log; a file that is no text is left out."""
        path, name = file, file.name
        try:
            if name.endswith(".gz"):
                path, name = self._copy(file), name.removesuffix(".gz")
            with path.open("rb") as opened:
                sample = opened.read(SAMPLE)
        except (OSError, EOFError, zlib.error) as err:
            self.left_out.append(f"`{file.name}` ({err})")
            return
        if _BINARY.search(sample, 0, _SAMPLE):
            self.left_out.append(f"`{file.name}` (not text)")
            return
        pod = _stem(name)
        self._add(pod if pod not in self.logs else name, path, sample)

    def split_combined(self) -> None:
        """Put the lines of each pod into a log of its own, where one text holds those of several pods."""
        for pod, path in tuple(self.logs.items()):
            with suppress(OSError), path.open("rb") as log:
                self._add(pod, path, log.read(SAMPLE))

    def _add(self, pod: str, path: Path, sample: bytes) -> None:
        """Add a log that begins with this sample; one with the name of the pod before each line has the logs of these pods."""
        self.logs[pod] = path
        prefix = find_prefix(sample)
        if prefix is None or path.stat().st_size > MAX_UNPACKED_BYTES - self._written:
            return
        self._written += path.stat().st_size
        logs = split_log(path, prefix, Path(tempfile.mkdtemp(dir=self._folder())))
        if self.logs.keys() - {pod} & logs.keys():
            return  # another file is the log of one of these pods
        if is_log_of_one(pod, prefix, logs, has_other_logs=len(self.logs) > 1):
            return
        del self.logs[pod]
        self.logs |= logs

    def add_stream(self, stream: IO[bytes]) -> None:
        """Add a log that is read to its end, such as standard input; it may be compressed."""
        first = stream.read(2)
        target = self._folder() / f"{self.name}.log"
        is_cut = self._write(target, _chunks(stream, first))
        if first == b"\x1f\x8b":
            self._written, packed = 0, target.rename(target.with_suffix(".packed"))
            with gzip.open(packed) as unpacked:
                is_cut = self._write(target, _chunks(unpacked))
        if is_cut:
            self._leave_out_end("standard input")
        with target.open("rb") as log:
            self._add(self.name, target, log.read(SAMPLE))

    def _copy(self, file: Path) -> Path:
        target = self._folder() / f"{file.name.removesuffix('.gz')}"
        with gzip.open(file) as source:
            if self._write(target, _chunks(source)):
                self._leave_out_end(f"`{file.name}`")
        return target

    def _write(self, target: Path, chunks: Iterable[bytes]) -> bool:
        """Write as much as the limit allows; return whether there is more."""
        with target.open("wb") as out:
            for chunk in chunks:
                room = MAX_UNPACKED_BYTES - self._written
                try:
                    self._written += out.write(chunk[:room])
                    out.flush()
                except OSError as err:  # of this file, while other errors are those of the source
                    raise explain_os_error(err, target.parent) from err
                if len(chunk) > room:
                    return True
        return False

    def _leave_out_end(self, name: str) -> None:
        self.left_out.append(f"the end of {name} (all logs are longer than {MAX_UNPACKED_BYTES // MIB} MiB)")

    def _folder(self) -> Path:
        if self._unpacked is None:
            try:
                self._unpacked = Path(tempfile.mkdtemp(prefix="kfjob-"))
            except OSError as err:
                hint = "set TMPDIR to another folder"
                raise BackendError("a folder for unpacked logs cannot be created", cause=str(err), hint=hint) from err
            weakref.finalize(self, shutil.rmtree, self._unpacked, ignore_errors=True)
        return self._unpacked


def find_saved_logs(path: Path) -> SavedLogs:
    """Return the logs of a file, of a folder, or of standard input (`-`).

    Raises:
        NotFound: the path does not exist, or holds no logs.
        UsageError: a file is not a log.
    """
    if str(path) == STDIN:
        saved = SavedLogs("stdin")
        try:
            saved.add_stream(sys.stdin.buffer)
        except (OSError, EOFError, zlib.error) as err:
            raise UsageError("standard input cannot be read", cause=str(err)) from err
        return saved
    if path.is_dir():
        return _find_in_folder(path)
    if not path.exists():
        raise NotFound(f"`{path}` does not exist", hint="`--from` takes a folder, a log file, or `-` for standard input")
    if not path.is_file():  # a FIFO or a device may have no end
        raise NotFound(f"`{path}` is neither a folder nor a file", hint="`--from -` reads standard input")
    saved = SavedLogs(_stem(path.name.removesuffix(".gz")))
    saved.add_file(path)
    if not saved.logs:
        raise UsageError(f"`{path}` is not a log", cause=saved.left_out[0], hint="kfjob reads text, also compressed as `.gz`")
    return saved


def _find_in_folder(path: Path) -> SavedLogs:
    saved = SavedLogs(path.name, folder.find_logs(path))
    if (path / folder.STATUS).exists():
        return saved
    saved.split_combined()
    files = [entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    for file in sorted(files, key=lambda file: (not file.suffix, file.name)):
        if file.name.endswith(_OTHER_ENDINGS) or (not file.suffix and saved.logs):  # such as LICENSE, beside logs
            saved.left_out.append(f"`{file.name}` (not a log)")
        elif not file.name.endswith(".log"):
            saved.add_file(file)
    if not saved.logs:
        hint = "kfjob reads text files, also compressed as `.gz`, and `<pod>/<container>.log`"
        cause = f"left out: {', '.join(saved.left_out[:10])}" if saved.left_out else None
        raise NotFound(f"folder `{path}` contains no logs", cause=cause, hint=hint)
    return saved


def _chunks(stream: IO[bytes] | gzip.GzipFile, first: bytes = b"") -> Iterator[bytes]:
    yield first
    while chunk := stream.read(MIB):
        yield chunk


def _stem(name: str) -> str:
    return name.rpartition(".")[0] or name
