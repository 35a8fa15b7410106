"""Apply a line filter to one container's log, before a value is made from each line."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from kfjob.backends import log_file
from kfjob.backends.base import LineFilter
from kfjob.base.units import SECOND


class RawLine(Struct, frozen=True):
    """One line as the kubelet sends it."""

    line: bytes
    skipped: int = 0  # lines before it that the filter left out
    selected: bool = True  # by the filter; otherwise it shows that the container is alive
    truncated: int = 0  # bytes at its end that were dropped


class FilteredLines:
    """The selected lines of one container, and of the other lines one per second and the last."""

    def __init__(self, line_filter: LineFilter) -> None:
        """Begin where the log begins."""
        self._line_filter = line_filter
        self._skipped = 0
        self._sampled = 0  # timestamp of the newest line that came although the filter left it out
        self._last: bytes | None = None  # the newest line, if it was left out

    def take(self, block: bytes) -> Iterator[RawLine]:
        """Yield the lines to report from the next block of whole lines."""
        position = 0
        if not block:
            return
        for start, end in self._line_filter(block):
            yield RawLine(block[start:end], self._skipped + block.count(b"\n", position, start))
            self._skipped, self._last, position = 0, None, end + 1
        if position >= len(block):
            return
        self._skipped += block.count(b"\n", position)
        self._last = block[block.rfind(b"\n", 0, -1) + 1 : -1]
        time, _ = log_file.parse_line(self._last)
        if time is None or time - self._sampled >= SECOND:
            self._sampled = time or 0
            yield from self.take_last()

    def resume(self) -> None:
        """Begin again after the last reported line: the log is read from there once more."""
        self._skipped, self._last = 0, None

    def selects(self, line: bytes) -> bool:
        """Return whether the filter selects the next line. The line is not counted: it may be a repetition."""
        return bool(self._line_filter(line + b"\n"))

    def take_last(self) -> Iterator[RawLine]:
        """Yield the last line, if it was left out."""
        if self._last is not None:
            yield RawLine(self._last, self._skipped - 1, selected=False)
            self._skipped, self._last = 0, None
