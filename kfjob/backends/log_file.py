"""A container's log as a file: each line after its timestamp, as `kubectl logs --timestamps` prints it.

A range is found by its position in the file: the last lines backwards from the end, a time by bisection. So showing the end of
a log of gigabytes does not read the whole file. Files without timestamps work too; their lines have no time. The stream name
that containerd writes into its own files is not part of the text.
"""

from __future__ import annotations

import os
import re
import time as clock
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kfjob.backends.line_splitter import LINE_BYTES, LineSplitter, describe_dropped
from kfjob.base.file_access import open_regular
from kfjob.base.units import SECOND, check_time

if TYPE_CHECKING:  # the supervisor writes timestamps and does not need `base`
    from kfjob.backends.base import LogRange

BLOCK = 1 << 16
POLL_SECONDS = 0.1
"""Time between two looks at a followed file."""

_TIMESTAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))(?: (?:std(?:out|err) [FP] )?|$)"
)

_NEVER = 1 << 64
"""Later than every timestamp."""
Line = tuple[int | None, str]
"""A line's timestamp, in nanoseconds since the epoch, and its text."""


def format_timestamp(time: int) -> bytes:
    """Return the prefix of a line written at `time` (nanoseconds since the epoch): `2026-11-21T08:30:00.000000000Z `"""
    seconds, nanoseconds = divmod(time, SECOND)
    return b"%s.%09dZ " % (_format_date(seconds), nanoseconds)


def parse_line(raw: bytes) -> Line:
    """Return time and text of a line without its line end. Bytes that are not UTF-8 are replaced."""
    match = _TIMESTAMP.match(raw)
    time = _to_time(match) if match else None
    text = raw[match.end() :] if match and time is not None else raw
    return time, text.decode("utf-8", errors="replace")


def read_lines(path: Path, log_range: LogRange) -> Iterator[Line]:
    """Yield the lines of a file in the range.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    with open_regular(path) as file:
        lines = _FileLines(file, start=_find_start(file, log_range))
        yield from _limit_bytes(map(parse_line, lines.read_all()), log_range.limit_bytes)


def follow_lines(
    path: Path, log_range: LogRange, *, ended: Callable[[], bool], restarted: Callable[[], None]
) -> Iterator[Line]:
    """Yield the range, then every line that is added, until `ended()` was true before the end of the file was reached.

    A file that another file has replaced is read to its end first; `restarted` is called before the first line of the new one.
    """
    return _limit_bytes(_follow(path, log_range, ended, restarted), log_range.limit_bytes)


def _follow(path: Path, log_range: LogRange, ended: Callable[[], bool], restarted: Callable[[], None]) -> Iterator[Line]:
    lines: _FileLines | None = None
    try:
        while True:
            is_last = ended()
            if lines is None:
                if (file := _open(path)) is not None:
                    lines = _FileLines(file, start=_find_start(file, log_range))
            elif (file := _open_replacement(path, lines.file)) is not None:
                yield from map(parse_line, lines.read_all())
                lines.file.close()
                lines = _FileLines(file)
                restarted()
            if lines is not None:
                yield from map(parse_line, lines.read_all() if is_last else lines.read_complete())
            if is_last:
                return
            clock.sleep(POLL_SECONDS)
    finally:
        if lines is not None:
            lines.file.close()


class _FileLines:
    """The lines of an open log file, also of one that grows."""

    def __init__(self, file: BinaryIO, *, start: int = 0) -> None:
        self.file = file
        self._splitter = LineSplitter(LINE_BYTES)
        file.seek(start)

    def read_complete(self) -> Iterator[bytes]:
        """Yield the new lines that have a line end."""
        while block := self.file.read(BLOCK):
            first, newline, rest = block.partition(b"\n")
            *lines, partial = rest.split(b"\n")
            yield from self._take(first + newline)
            yield from lines
            yield from self._take(partial)

    def read_all(self) -> Iterator[bytes]:
        """Yield all new lines, also a last one without a line end."""
        yield from self.read_complete()
        if rest := self._splitter.take_rest():
            yield _mark_dropped(*rest)

    def _take(self, piece: bytes) -> Iterator[bytes]:
        """Yield the lines that the piece completes; a longer line than `LINE_BYTES` is never in memory as a whole."""
        for line, dropped in self._splitter.take(piece):
            yield _mark_dropped(line, dropped)


def _mark_dropped(line: bytes, dropped: int) -> bytes:
    return line + describe_dropped(dropped).encode() if dropped else line


def _open(path: Path) -> BinaryIO | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return open_regular(path)
    return None


def _open_replacement(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Open the file that has replaced `file` at the path, or return None."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return open_regular(path)
    return None


def _limit_bytes(lines: Iterator[Line], limit: int | None) -> Iterator[Line]:
    remaining = limit
    for time, text in lines:
        if remaining is not None:
            remaining -= len(text.encode()) + 1
            if remaining < 0:
                return
        yield time, text


def _find_start(file: BinaryIO, log_range: LogRange) -> int:
    """Return the position of the first byte of the range."""
    end = file.seek(0, os.SEEK_END)
    start = 0 if log_range.since is None else _find_time(file, end, log_range.since)
    return start if log_range.tail is None else _find_tail(file, start, end, log_range.tail)


def _find_time(file: BinaryIO, end: int, time: int) -> int:
    """Return the position of the first line written at `time` or later. Lines are in the order of their times."""
    if _read_time(file, 0) == _NEVER:
        return 0
    position = bisect_left(range(end), time, key=partial(_read_time, file))
    if not position:
        return 0
    file.seek(position - 1)  # here the last older line begins
    _skip_line(file)
    return file.tell()


def _read_time(file: BinaryIO, position: int) -> int:
    """Return the time of the first line with a timestamp that begins at `position` or later; `_NEVER` without one."""
    file.seek(max(position - 1, 0))
    if position:
        _skip_line(file)
    while line := file.readline(LINE_BYTES):
        if (match := _TIMESTAMP.match(line.rstrip(b"\n"))) and (time := _to_time(match)) is not None:
            return time
        if not line.endswith(b"\n"):
            _skip_line(file)
    return _NEVER


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(LINE_BYTES)) and not part.endswith(b"\n"):
        pass


def _find_tail(file: BinaryIO, start: int, end: int, lines: int) -> int:
    """Return the position of the last `lines` lines, not before `start`."""
    if lines <= 0:
        return end
    missing = lines
    position = end
    while position > start:
        size = min(BLOCK, position - start)
        position -= size
        file.seek(position)
        block = file.read(size)
        is_last_block = position + size == end
        newline = size - 1 if is_last_block and block.endswith(b"\n") else size  # no line begins after the last line end
        while (newline := block.rfind(b"\n", 0, newline)) >= 0:
            missing -= 1
            if not missing:
                return position + newline + 1
    return start


@lru_cache(maxsize=8)
def _format_date(seconds: int) -> bytes:
    return clock.strftime("%Y-%m-%dT%H:%M:%S", clock.gmtime(seconds)).encode()


@lru_cache(maxsize=64)
def _parse_date(date: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{date.decode()}+00:00").timestamp())
    except ValueError:
        return None


def _to_time(match: re.Match[bytes]) -> int | None:
    date, fraction, sign, hours, minutes = match.groups()
    if (seconds := _parse_date(date)) is None:
        return None
    if sign:
        offset = (int(hours) * 60 + int(minutes)) * 60
        seconds -= offset if sign == b"+" else -offset
    return check_time(seconds * SECOND + int((fraction or b"").ljust(9, b"0")))
