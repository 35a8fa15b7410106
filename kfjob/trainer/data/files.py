"""Files of lines as one sequence of bytes: .txt with a document a line, .jsonl with a record a line."""

from __future__ import annotations

import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from kfjob.errors import KfjobError
from kfjob.trainer.data.source import Pick, Reader, Target, named, picked, unreadable


class LineFiles:
    """Lines of several files; a place is a byte of their concatenation, and a line belongs to the lane in which it begins."""

    def __init__(self, paths: list[Path], *, text_field: str, pick: Pick) -> None:
        """Look at the files' sizes only."""
        self.paths, self.text_field, self.pick = paths, text_field, pick
        self.name = named(paths)
        sizes = [path.stat().st_size for path in paths]
        self.ends = list(accumulate(sizes))
        self.identity: dict[str, Any] = {"kind": "lines", "files": len(paths), "bytes": sum(sizes)}

    def lanes(self, wanted: int) -> int:
        """Bytes can be cut anywhere."""
        return wanted

    def begin(self, lane: int, lanes: int) -> int:
        """The byte at which the lane's first line begins: the first one that begins in its share."""
        share = self.ends[-1] * lane // lanes
        number = self.file_at(share)
        if number == len(self.paths) or share == self.start(number):
            return share
        with self.paths[number].open("rb") as file:
            file.seek(share - self.start(number) - 1)
            file.readline()
            return self.start(number) + file.tell()

    def file_at(self, place: int) -> int:
        """The number of the file that holds a byte."""
        return bisect_right(self.ends, place)

    def start(self, number: int) -> int:
        """The place of a file's first byte."""
        return self.ends[number - 1] if number else 0

    def read(self, lane: int, lanes: int, place: Target) -> Reader:
        """The lines of a lane."""
        begin = self.begin(lane, lanes) if place is None else place
        return _Lines(self, begin, self.begin(lane + 1, lanes))


class _Lines(Reader):
    def __init__(self, files: LineFiles, begin: int, end: int) -> None:
        self._files, self._at, self._end = files, begin, end
        self._file: BinaryIO | None = None
        self._path, self._file_end = files.paths[0], 0

    @property
    def place(self) -> Target:
        return self._at

    def __next__(self) -> Any:
        while self._at < self._end:
            at = self._at
            line = self._line()
            if not line:
                raise KfjobError(f"`{self._path}` has become shorter while it was read")
            self._at += len(line)
            if (item := self._item(line, at)) is not None:
                return item
        self._close()
        raise StopIteration

    def _line(self) -> bytes:
        if self._file is None or self._at >= self._file_end:
            self._close()
            number = self._files.file_at(self._at)
            self._path, self._file_end = self._files.paths[number], self._files.ends[number]
            self._file = self._path.open("rb")
            self._file.seek(self._at - self._files.start(number))
        return self._file.readline()

    def _item(self, line: bytes, at: int) -> Any:
        if not (line := line.strip()):
            return None

        def where() -> str:
            with self._path.open("rb") as file:
                ahead = file.read(at - self._files.start(self._files.file_at(at)))
            number = ahead.count(b"\n") + 1
            return f"line {number} of `{self._path}`"

        try:
            record = json.loads(line) if self._path.suffix == ".jsonl" else {self._files.text_field: line.decode()}
        except ValueError as error:
            raise unreadable(where(), error) from error
        return picked(self._files.pick, record, where)

    def _close(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    def __del__(self) -> None:
        self._close()
