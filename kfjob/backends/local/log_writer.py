"""What a process prints -> its log file, each line after the time it was taken up. No byte is lost, whatever the bytes are."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from kfjob.backends.log_file import format_timestamp

CHUNK = 1 << 16
LONGEST_LINE = 1 << 16
"""Bytes after which a line without an end is cut."""
DRAWN = 1.0
"""Seconds after which a progress bar, which goes back to the begin of its line, is a line as far as it was drawn."""


class LogWriter:
    """From the read end of a pipe to a new file."""

    def __init__(self, source: int, path: Path) -> None:
        self._source = source
        self._file = path.open("wb", buffering=0)
        self._partial = b""
        self._written = time.monotonic()
        self._lost = 0  # lines that the disk did not take

    def step(self) -> bool:
        """Move what is there, waiting for some of it; False: the pipe is closed and all of it is written."""
        if block := os.read(self._source, CHUNK):
            self._take(block)
            return True
        self._write(self._partial)
        self._partial = b""
        return False

    def close(self) -> None:
        """Give up what was not read."""
        self._write(self._partial)
        self._file.close()

    def _take(self, block: bytes) -> None:
        whole, newline, partial = block.rpartition(b"\n")
        if newline:
            self._write(self._partial + whole + newline)
            self._partial = partial
        else:
            self._partial += partial
        if len(self._partial) >= LONGEST_LINE:
            self._write(self._partial)
            self._partial = b""
        elif time.monotonic() - self._written >= DRAWN:
            before, back, now = self._partial.rpartition(b"\r")
            if now:  # else a line feed may follow
                self._write(before)
                self._partial = back + now

    def _write(self, lines: bytes) -> None:
        """Lines, the last one with or without its end; a full disk costs lines, and the log says so, but never the job."""
        if not lines:
            return
        self._written = time.monotonic()
        mark = format_timestamp(time.time_ns())
        lines = lines.removesuffix(b"\n")
        data = mark + lines.replace(b"\n", b"\n" + mark) + b"\n"
        if self._lost:
            data = mark + b"kfjob: %d lines are lost here, the disk took no more\n" % self._lost + data
        begin = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]
            self._lost = 0
        except OSError:
            self._lost += lines.count(b"\n") + 1
            with suppress(OSError):  # what was written of it is half a line
                self._file.truncate(begin)
                self._file.seek(begin)
