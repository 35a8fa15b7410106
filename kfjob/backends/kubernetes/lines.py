"""Bytes that arrive in pieces, to whole lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class LineSplitter:
    """Cuts at line feeds only: a carriage return is a progress bar's. Lines stay bytes, so a piece may end inside a character.

    Of a line longer than `limit` bytes its beginning is kept, and the newest state of a bar that is drawn in it.
    """

    def __init__(self, limit: int) -> None:
        """Memory is bounded by `limit` and the size of a piece."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0  # of the parts
        self._length = 0  # of the line, with what was not kept
        self._returned = False  # the line has a carriage return
        self._drawing = b""  # after the newest one
        self.drawn = b""
        """The newest whole state of a progress bar that goes back to the begin of the open line; empty: there is none."""

    def take(self, piece: bytes) -> Iterator[tuple[bytes, int]]:
        """Every line that `piece` completes, and how many of its bytes were not kept."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._add(piece[start:end])
            yield self._line()
            start = end + 1
        self._add(piece[start:])

    def block(self, piece: bytes) -> bytes:
        """The same lines in one piece, each with its line end."""
        end = piece.rfind(b"\n") + 1
        if not end:
            self._add(piece)
            return b""
        first = piece.find(b"\n")
        self._add(piece[:first])
        line, _ = self._line()
        self._add(piece[end:])
        return line + piece[first:end]

    def rest(self) -> tuple[bytes, int] | None:
        """What came after the last line feed, None for nothing."""
        return self._line() if self._length else None

    def _add(self, part: bytes) -> None:
        self._length += len(part)
        if room := self._limit - self._size:
            self._parts.append(part[:room])
            self._size += len(self._parts[-1])
        if self._returned or b"\r" in part:
            self._draw(part)

    def _draw(self, part: bytes) -> None:
        if not self._returned:
            part = part.partition(b"\r")[2]  # before it the line has its time
            self._returned = True
        *states, drawing = (self._drawing + part).split(b"\r")
        self.drawn = next((state for state in reversed(states) if state.strip()), self.drawn)
        self._drawing = drawing[: self._limit]

    def _line(self) -> tuple[bytes, int]:
        lost = self._length - self._size
        if self._returned:
            newest = b"\r" + (self._drawing if self._drawing.strip() else self.drawn)
            if lost >= len(newest):
                self._parts.append(newest)
                lost -= len(newest)
            self._returned, self._drawing, self.drawn = False, b"", b""
        line = b"".join(self._parts)
        self._parts, self._size, self._length = [], 0, 0
        return line, lost


def lines(pieces: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Every line of `pieces`, also a last one without a line feed."""
    splitter = LineSplitter(limit)
    for piece in pieces:
        for line, _ in splitter.take(piece):
            yield line
    if last := splitter.rest():
        yield last[0]
