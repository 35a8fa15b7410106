"""The newest lines of a container and their timestamps. They date the lines that a program prints without a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.timestamps import Timestamp, parse_glog, parse_rfc3339

MAX_LINES = 200
"""Newest lines in which a timestamp is searched."""

_SEARCH_LENGTH = 100
"""First characters of a line, in which a time is searched."""
_MIN_COLONS = 2
"""Colons in every time."""
_FULL = Pattern(r"(\d{4}-\d\d-\d\d)[ T_](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_GLOG = Pattern(r"(?:^|[^A-Za-z])[IWEFCV](\d{4}) (\d\d:\d\d:\d\d\.\d+)")


class RecentLines:
    """The newest lines of one container."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int | None, str]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._searched = 0  # lines in which a timestamp was searched
        self._dated: tuple[int, Timestamp] | None = None  # number and timestamp of the newest line that has one

    def append(self, time: int | None, text: str) -> None:
        """Add a line with the kubelet's time."""
        self._lines.append((time, text))
        self._count += 1

    def timestamp(self) -> Timestamp:
        """Return the time of the last line; if it has none, the time of the newest earlier line that has one."""
        for distance, (time, text) in enumerate(islice(reversed(self._lines), self._count - self._searched)):
            if timestamp := Timestamp(time=time) if time is not None else find_timestamp(text):
                self._dated = self._count - distance, timestamp
                break
        self._searched = self._count
        if self._dated is None or self._count - self._dated[0] >= MAX_LINES:
            return Timestamp(exact=False)
        number, timestamp = self._dated
        return Timestamp(timestamp.time, timestamp.yearless, exact=number == self._count)

    def find_time(self) -> int | None:
        """Return the newest time with a year in the lines."""
        stamps = (find_timestamp(text) for text in self.texts())
        return next((stamp.time for stamp in stamps if stamp and stamp.time is not None), None)

    def before(self) -> Iterator[str]:
        """Return the lines before the last one, the newest first."""
        return (text for _, text in islice(reversed(self._lines), 1, None))

    def texts(self) -> Iterator[str]:
        """Return all lines, the newest first."""
        return (text for _, text in reversed(self._lines))

    def dated_texts(self) -> Iterator[tuple[int | None, str]]:
        """Return all lines with the kubelet's time, the newest first."""
        return reversed(self._lines)

    def last_texts(self, count: int) -> list[str]:
        """Return the last lines that are not blank, in the order of the log."""
        lines = (text.strip() for text in self.texts())
        return list(islice((text for text in lines if text), count))[::-1]

    @property
    def last_text(self) -> str:
        """The last line that is not blank."""
        return next((text.strip() for _, text in reversed(self._lines) if text.strip()), "")


def find_timestamp(text: str) -> Timestamp | None:
    """Return the timestamp at the start of the line, taken as UTC, or None."""
    text = text[:_SEARCH_LENGTH]
    if text.count(":") < _MIN_COLONS:
        return None
    if match := _FULL.search(text):
        return Timestamp(time=parse_rfc3339(f"{match[1]} {match[2]}"))
    if match := _GLOG.search(text):
        return Timestamp(yearless=parse_glog(match[1], match[2]))
    return None
