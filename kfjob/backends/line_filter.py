"""Lines of a container that nobody wants, left out before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kfjob.backends import log_file

if TYPE_CHECKING:
    from kfjob.backends.base import LineFilter

SECOND = 1_000_000_000

Kept = tuple[bytes, int, bool]
"""A line, how many before it were left out, and whether it is wanted."""


class LineSelection:
    """The wanted lines of one container, and of the others one a second and the last."""

    def __init__(self, sift: LineFilter) -> None:
        """Of a log that is read from here on."""
        self._sift = sift
        self._skipped = 0
        self._told = 0  # when the newest line was taken up that came although it is not wanted
        self._last: bytes | None = None  # the newest line, if it was left out

    def take(self, block: bytes) -> Iterator[Kept]:
        """What is told of the next block of whole lines."""
        at = 0
        if not block:
            return
        for start, end in self._sift(block):
            yield block[start:end], self._skipped + block.count(b"\n", at, start), True
            self._skipped, self._last, at = 0, None, end + 1
        if at >= len(block):
            return
        self._skipped += block.count(b"\n", at)
        self._last = block[block.rfind(b"\n", 0, -1) + 1 : -1]
        time, _ = log_file.parse(self._last)
        if time is None or time - self._told >= SECOND:
            self._told = time or 0
            yield from self.rest()

    def resume(self) -> None:
        """The log is opened again: what was left out since the last line that was told comes once more."""
        self._skipped, self._last = 0, None

    def wants(self, line: bytes) -> bool:
        """Whether the next line is wanted, which may have been told before: it is not counted."""
        return bool(self._sift(line + b"\n"))

    def rest(self) -> Iterator[Kept]:
        """The last line, if it was left out."""
        if self._last is not None:
            yield self._last, self._skipped - 1, False
            self._skipped, self._last = 0, None
