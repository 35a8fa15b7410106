"""A container's log as a file: each line after the time it was taken up, as `kubectl logs --timestamps` prints it.

A part of a log is found by its place in the file: the last lines from the end backwards, a time by bisection. So a log of
gigabytes is never read as a whole to show its end. Files without times are read too; their lines have no time. The
stream that containerd names in its own files is no part of the text.
"""

from __future__ import annotations

import os
import re
import time as clock
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:  # the supervisor writes stamps and must not wait for pydantic, which `base` brings
    from kfjob.backends.base import LogRange

BLOCK = 1 << 16
POLL_SECONDS = 0.1
"""How old a followed line may get before it is seen."""

_STAMP = re.compile(
    rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):(\d\d))(?: (?:std(?:out|err) [FP] )?|$)"
)
_SECOND = 1_000_000_000

Line = tuple[int | None, str]
"""When it was taken up, in nanoseconds since the epoch, and its text."""


def stamp(time: int) -> bytes:
    """The prefix of a line taken up at `time` (nanoseconds since the epoch): `2026-11-21T08:30:00.000000000Z `"""
    seconds, nanoseconds = divmod(time, _SECOND)
    return b"%s.%09dZ " % (_date(seconds), nanoseconds)


def parse(raw: bytes) -> Line:
    """One line of a log file, without its line end. A line that begins with no time has none; what is no UTF-8 is replaced."""
    found = _STAMP.match(raw)
    time = _time(found) if found else None
    text = raw[found.end() :] if found and time is not None else raw
    return time, text.decode("utf-8", errors="replace")


def read(path: Path, wanted: LogRange) -> Iterator[Line]:
    """The lines of a file that are there now and belong to the range.

    Raises:
        FileNotFoundError: there is no such file.
    """
    with path.open("rb") as file:
        yield from _limited(map(parse, _Lines(file, start=_start(file, wanted)).rest()), wanted.limit_bytes)


def follow(path: Path, wanted: LogRange, *, ended: Callable[[], bool], restarted: Callable[[], None]) -> Iterator[Line]:
    """The range, and then every line that is added, until `ended()` was true before the file was read to its end.

    A file that another one has replaced is read to its end first; `restarted` is told before the first line of the new one.
    """
    return _limited(_follow(path, wanted, ended, restarted), wanted.limit_bytes)


def _follow(path: Path, wanted: LogRange, ended: Callable[[], bool], restarted: Callable[[], None]) -> Iterator[Line]:
    lines: _Lines | None = None
    try:
        while True:
            last = ended()
            if lines is None:
                if (file := _open(path)) is not None:
                    lines = _Lines(file, start=_start(file, wanted))
            elif (file := _replacement(path, lines.file)) is not None:
                yield from map(parse, lines.rest())
                lines.file.close()
                lines = _Lines(file)
                restarted()
            if lines is not None:
                yield from map(parse, lines.rest() if last else lines.complete())
            if last:
                return
            clock.sleep(POLL_SECONDS)
    finally:
        if lines is not None:
            lines.file.close()


class _Lines:
    """An open log file, read on as it grows."""

    def __init__(self, file: BinaryIO, *, start: int = 0) -> None:
        self.file = file
        self._partial: list[bytes] = []
        file.seek(start)

    def complete(self) -> Iterator[bytes]:
        """Lines that were added and have their end."""
        while block := self.file.read(BLOCK):
            first, newline, others = block.partition(b"\n")
            self._partial.append(first)
            if newline:
                yield b"".join(self._partial)
                *lines, partial = others.split(b"\n")
                self._partial = [partial]
                yield from lines

    def rest(self) -> Iterator[bytes]:
        """All that is left, with a last line that has no end."""
        yield from self.complete()
        if partial := b"".join(self._partial):
            yield partial
        self._partial = []


def _open(path: Path) -> BinaryIO | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        return path.open("rb")
    return None


def _replacement(path: Path, file: BinaryIO) -> BinaryIO | None:
    """What stands in the place of `file` now, if that is another file."""
    with suppress(FileNotFoundError, NotADirectoryError):
        if not os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return path.open("rb")
    return None


def _limited(lines: Iterator[Line], limit: int | None) -> Iterator[Line]:
    left = limit
    for time, text in lines:
        if left is not None:
            left -= len(text.encode()) + 1
            if left < 0:
                return
        yield time, text


def _start(file: BinaryIO, wanted: LogRange) -> int:
    """The byte at which the range begins."""
    end = file.seek(0, os.SEEK_END)
    start = 0 if wanted.since is None else _since(file, end, wanted.since)
    return start if wanted.tail is None else _tail(file, start, end, wanted.tail)


def _since(file: BinaryIO, end: int, time: int) -> int:
    """Where the first line begins that was taken up at `time` or later. Lines are in the order of their times."""
    low, high = 0, end  # every line that begins before `low` is older, the line that begins at `high` or later is not
    while low < high:
        middle = (low + high) // 2
        begin, taken, after = _timed_line(file, middle, high)
        if taken is not None and taken < time:
            low = after
        else:
            high = min(middle, begin)
    return low


def _timed_line(file: BinaryIO, position: int, end: int) -> tuple[int, int | None, int]:
    """The first line with a time that begins at `position` or later and before `end`: its begin, its time, its end."""
    begin = position
    if position:
        file.seek(position - 1)
        begin = position - 1 + len(file.readline())
    file.seek(begin)
    while begin < end:
        raw = file.readline()
        if found := _STAMP.match(raw.rstrip(b"\n")):
            return begin, _time(found), begin + len(raw)
        begin += len(raw)
    return end, None, end


def _tail(file: BinaryIO, start: int, end: int, lines: int) -> int:
    """Where the last `lines` lines begin, not before `start`."""
    if lines <= 0:
        return end
    missing = lines
    position = end
    while position > start:
        size = min(BLOCK, position - start)
        position -= size
        file.seek(position)
        block = file.read(size)
        at = size - 1 if position + size == end and block.endswith(b"\n") else size  # the end of the last line begins no line
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            missing -= 1
            if not missing:
                return position + at + 1
    return start


@lru_cache(maxsize=8)
def _date(seconds: int) -> bytes:
    return clock.strftime("%Y-%m-%dT%H:%M:%S", clock.gmtime(seconds)).encode()


@lru_cache(maxsize=64)
def _seconds(date: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{date.decode()}+00:00").timestamp())
    except ValueError:
        return None


def _time(found: re.Match[bytes]) -> int | None:
    date, fraction, sign, hours, minutes = found.groups()
    if (seconds := _seconds(date)) is None:
        return None
    if sign:
        offset = (int(hours) * 60 + int(minutes)) * 60
        seconds -= offset if sign == b"+" else -offset
    return seconds * _SECOND + int((fraction or b"").ljust(9, b"0"))
