"""Write a process's output to its log file, each line after a timestamp. No byte is lost, also of binary output."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kfjob.backends.log_file import format_timestamp
from kfjob.base.file_access import open_private

CHUNK = 1 << 16
MAX_LINE_BYTES = 1 << 16
"""Size of a line without a line end; a longer one is split."""
BAR_SECONDS = 1.0
"""Age of the states of a progress bar with carriage returns, after which they are written as a line.

After this time without output the last state is written too."""


class LogWriter:
    """Copies the read end of a pipe to a new file."""

    def __init__(self, source: int, path: Path, *, watched: bytes = b"", on_watched: Callable[[], None] | None = None) -> None:
        """Copy `source`; `on_watched` is called after lines with the bytes `watched`."""
        self._watched = watched
        self._on_watched = on_watched
        self._source = source
        self._file = open_private(path, "wb", buffering=0)
        self._partial = b""
        self._has_written_bar = False  # its line end may follow
        self._written = time.monotonic()
        self.lost_lines = 0
        """Lines that could not be written, because the disk was full."""
        self.loss_reason = ""
        """The system's message about the newest of them; "" without one."""
        self._lost = 0  # those of them that the log does not mention

    def step(self) -> bool:
        """Wait for output and write it; return False once the pipe is closed and everything is written."""
        if block := os.read(self._source, CHUNK):
            self._take(block)
            return True
        self._write(self._partial)
        self._partial = b""
        return False

    @property
    def has_open_bar(self) -> bool:
        """Whether states of a progress bar wait for the end of their line."""
        return b"\r" in self._partial

    def flush_bar(self) -> None:
        """Write the states of a progress bar that wait, as after a time without output."""
        if self.has_open_bar:
            self._write(self._partial)
            self._partial = b""
            self._has_written_bar = True

    def close(self) -> None:
        """Close the file. Output that was not read is lost."""
        self._write(self._partial)
        self._file.close()

    def _take(self, block: bytes) -> None:
        if self._has_written_bar:
            block = block.removeprefix(b"\n")
            self._has_written_bar = False
        lines, newline, partial = block.rpartition(b"\n")
        if newline:
            self._write(self._partial + lines + newline)
            self._partial = partial
        else:
            self._partial += partial
        if len(self._partial) >= MAX_LINE_BYTES:
            self._write(self._partial)
            self._partial = b""
        elif time.monotonic() - self._written >= BAR_SECONDS:
            before, carriage_return, state = self._partial.rpartition(b"\r")
            if state:  # otherwise a line feed may follow
                self._write(before)
                self._partial = carriage_return + state

    def _write(self, lines: bytes) -> None:
        """Write lines, the last one with or without its line end. On a full disk lines are lost and counted."""
        if not lines:
            return
        self._written = time.monotonic()
        mark = format_timestamp(time.time_ns())
        lines = lines.removesuffix(b"\n")
        data = mark + lines.replace(b"\n", b"\n" + mark) + b"\n"
        if self._lost:
            data = mark + b"kfjob: %d lines are lost here: the disk was full\n" % self._lost + data
        begin = self._file.tell()
        try:
            while data:
                data = data[self._file.write(data) :]
            self._lost = 0
        except OSError as err:
            count = lines.count(b"\n") + 1
            self._lost += count
            self.lost_lines += count
            self.loss_reason = err.strerror or str(err)
            with suppress(OSError):  # the last line is incomplete
                self._file.truncate(begin)
                self._file.seek(begin)
        if self._on_watched and self._watched in lines:
            self._on_watched()
