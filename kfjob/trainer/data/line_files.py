"""Line files as one sequence of bytes: .txt has one document per line, .jsonl one record per line."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json
from kfjob.base.units import MIB
from kfjob.trainer.data.content import fingerprint_files
from kfjob.trainer.data.records import (
    DIVIDE_HINT,
    MAX_RECORD_BYTES,
    Extract,
    Offset,
    Reader,
    RecordError,
    describe_files,
    extract_record,
    record_error,
)

_PIECE = MIB
"""Bytes to read at once where the content of lines does not matter."""


class LineFiles:
    """The lines of several files. An offset is a byte of their concatenation; a line belongs to the lane it begins in."""

    def __init__(self, paths: list[Path], *, text_field: str, extract: Extract) -> None:
        """Read the sizes of the files, and a part of their content."""
        self.paths, self.text_field, self.extract = paths, text_field, extract
        self.name = describe_files(paths)
        sizes = [path.stat().st_size for path in paths]
        self.ends = list(accumulate(sizes))
        self.identity: dict[str, Any] = {"kind": "lines", "files": len(paths), "bytes": sum(sizes)}
        self.identity["content"] = fingerprint_files(paths)

    def lane_count(self, requested: int) -> int:
        """Return `requested`: lanes can begin at any byte."""
        return requested

    def lane_begin(self, lane: int, lanes: int) -> int:
        """Return the offset of the first line that begins in the lane's share of the bytes."""
        share = self.ends[-1] * lane // lanes
        number = self.file_at(share)
        if number == len(self.paths) or share == self.file_begin(number):
            return share
        with self.paths[number].open("rb") as file:
            file.seek(share - self.file_begin(number) - 1)
            while (piece := file.readline(_PIECE)) and not piece.endswith(b"\n"):
                pass
            return self.file_begin(number) + file.tell()

    def file_at(self, offset: int) -> int:
        """Return the number of the file that holds the byte at `offset`."""
        return bisect_right(self.ends, offset)

    def file_begin(self, number: int) -> int:
        """Return the offset of a file's first byte."""
        return self.ends[number - 1] if number else 0

    def read(self, lane: int, lanes: int, offset: Offset) -> Reader:
        """Read the lines of a lane."""
        begin = self.lane_begin(lane, lanes) if offset is None else offset
        return _LineReader(self, begin, self.lane_begin(lane + 1, lanes))


class _LineReader(Reader):
    def __init__(self, files: LineFiles, begin: int, end: int) -> None:
        self._files, self._offset, self._end = files, begin, end
        self._file: BinaryIO | None = None
        self._path, self._file_end = files.paths[0], 0

    @property
    def offset(self) -> Offset:
        return self._offset

    def __next__(self) -> Any:
        while self._offset < self._end:
            offset = self._offset
            line = self._read_line()
            if not line:
                raise KfjobError(f"`{self._path}` has become shorter while it was read")
            self._offset += len(line)
            if (item := self._parse(line, offset)) is not None:
                return item
        self._close()
        raise StopIteration

    def _read_line(self) -> bytes:
        if self._file is None or self._offset >= self._file_end:
            self._close()
            number = self._files.file_at(self._offset)
            self._path, self._file_end = self._files.paths[number], self._files.ends[number]
            self._file = self._path.open("rb")
            self._file.seek(self._offset - self._files.file_begin(number))
        return self._file.readline(MAX_RECORD_BYTES + 1)

    def _describe_long_line(self) -> str:
        kind = "a document" if self._path.suffix == ".txt" else "a record"
        return f"each line is {kind}, and this one has more than {MAX_RECORD_BYTES // MIB} MiB"

    def _parse(self, line: bytes, offset: int) -> Any:
        size = len(line)
        if not (line := line.strip()):
            return None

        def location() -> str:
            begin = offset - self._files.file_begin(self._files.file_at(offset))
            return f"line {_count_line_ends(self._path, begin) + 1} of `{self._path}`"

        if size > MAX_RECORD_BYTES:
            raise record_error(location(), RecordError(self._describe_long_line(), hint=DIVIDE_HINT))
        try:
            record = parse_json(line) if self._path.suffix == ".jsonl" else {self._files.text_field: line.decode()}
        except ValueError as error:
            raise record_error(location(), error) from error
        return extract_record(self._files.extract, record, location)

    def _close(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    def __del__(self) -> None:
        self._close()


def _count_line_ends(path: Path, end: int) -> int:
    """Return the number of line ends in the first `end` bytes of a file."""
    count = 0
    with path.open("rb") as file:
        while end > 0 and (piece := file.read(min(end, _PIECE))):
            count += piece.count(b"\n")
            end -= len(piece)
    return count
