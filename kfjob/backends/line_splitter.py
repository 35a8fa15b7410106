"""Split bytes that arrive in pieces into lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LINE_BYTES = 1024 * 1024
"""Size of a line of a log; the end of a longer line is dropped, so neither a pod nor a file can fill kfjob's memory."""


def describe_dropped(count: int) -> str:
    """Return the end of a line of which bytes were dropped."""
    return f" … ({count} more bytes of this line are not shown)"


class LineSplitter:
    """Splits at line feeds only: a carriage return belongs to a progress bar. Lines stay bytes: a piece may end in a character.

    A line longer than `limit` bytes keeps its beginning, and the newest state of a progress bar in it.
    """

    def __init__(self, limit: int) -> None:
        """Memory is bounded by `limit` and the size of a piece."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0  # of the parts
        self._length = 0  # of the line, with the bytes that were dropped
        self._returned = False  # the line has a carriage return
        self._drawing = b""  # the bytes after the newest carriage return
        self.drawn = b""
        """The newest complete state of a progress bar in the open line; empty if it has none."""

    def take(self, piece: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield each line that `piece` completes, and how many of its bytes were dropped."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._add(piece[start:end])
            yield self._take_line()
            start = end + 1
        self._add(piece[start:])

    def take_block(self, piece: bytes) -> bytes:
        """Return the lines that `piece` completes as one block, each with its line end."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self._add(piece)
            return b""
        first = piece.find(b"\n")
        self._add(piece[:first])
        line, _ = self._take_line()
        self._add(piece[end:])
        return line + piece[first:end]

    def take_rest(self) -> tuple[bytes, int] | None:
        """Return the bytes after the last line feed as a line; None if there are none."""
        return self._take_line() if self._length else None

    def _add(self, part: bytes) -> None:
        self._length += len(part)
        if room := self._limit - self._size:
            self._parts.append(part[:room])
            self._size += len(self._parts[-1])
        if self._returned or b"\r" in part:
            self._draw(part)

    def _draw(self, part: bytes) -> None:
        if not self._returned:
            part = part.partition(b"\r")[2]  # before it stands the timestamp
            self._returned = True
        *states, drawing = (self._drawing + part).split(b"\r")
        self.drawn = next((state for state in reversed(states) if state.strip()), self.drawn)
        self._drawing = drawing[: self._limit]

    def _take_line(self) -> tuple[bytes, int]:
        dropped = self._length - self._size
        if self._returned:
            newest = b"\r" + (self._drawing if self._drawing.strip() else self.drawn)
            if dropped >= len(newest):
                self._parts.append(newest)
                dropped -= len(newest)
            self._returned, self._drawing, self.drawn = False, b"", b""
        line = b"".join(self._parts)
        self._parts, self._size, self._length = [], 0, 0
        return line, dropped


def split_lines(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield each line of `pieces`, also a last one without a line feed."""
    splitter = LineSplitter(limit)
    for piece in pieces:
        for line, _ in splitter.take(piece):
            yield line
    if rest := splitter.take_rest():
        yield rest[0]
