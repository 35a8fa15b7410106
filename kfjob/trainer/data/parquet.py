"""Parquet files as one sequence of rows; only the needed columns are read, a few rows of one row group at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB
from kfjob.trainer.data.content import fingerprint_files
from kfjob.trainer.data.records import (
    MAX_RECORD_BYTES,
    Extract,
    Offset,
    Reader,
    RecordError,
    check_size,
    describe_files,
    extract_record,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

MAX_BATCH_BYTES = 256 * MIB
"""Size of the rows of a Parquet file to decode at once, for which the file's metadata is trusted."""
_BATCH = 64
"""Rows to decode at once. A lane holds only these rows and the pages they come from in memory."""


class ParquetFiles:
    """The rows of several files; an offset is the number of a row."""

    def __init__(self, paths: list[Path], *, columns: Sequence[str], extract: Extract) -> None:
        """Read the footers of the files.

        Raises:
            KfjobError: pyarrow is not installed, or a file is not Parquet.
        """
        self.paths, self.extract = paths, extract
        self.name = describe_files(paths)
        self.groups = [
            (number, group, rows) for number, path in enumerate(paths) for group, rows in enumerate(_group_sizes(path))
        ]
        self.ends = list(accumulate(rows for _, _, rows in self.groups))
        if not self.ends or not self.ends[-1]:
            raise KfjobError(f"{self.name} has no rows", location="data")
        self.identity: dict[str, Any] = {"kind": "rows", "files": len(paths), "rows": self.ends[-1]}
        self.identity["content"] = fingerprint_files(paths)
        with open_file(paths[0]) as file:
            names = file.schema_arrow.names
        self.columns = [name for name in columns if name in names] or names
        self._lane_edges: dict[int, list[int]] = {}

    def lane_count(self, requested: int) -> int:
        """Return `requested`: lanes can begin at any row."""
        return requested

    def lane_begin(self, lane: int, lanes: int) -> int:
        """Return the lane's first row; it begins a row group if there are enough row groups."""
        if lanes not in self._lane_edges:
            shares = [self.ends[-1] * lane // lanes for lane in range(lanes + 1)]
            group_begins = [0, *self.ends]
            aligned = [group_begins[bisect_left(group_begins, share)] for share in shares]
            self._lane_edges[lanes] = aligned if len(set(aligned)) == lanes + 1 else shares
        return self._lane_edges[lanes][lane]

    def read_group(self, number: int, group: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group of the file with this number.

        Raises:
            KfjobError: its values are too large, or it is damaged.
        """
        path = self.paths[number]
        try:
            with open_file(path) as file:
                rows = _count_rows_at_once(file.metadata.row_group(group), self.columns)
                yield from file.iter_batches(rows, row_groups=[group], columns=self.columns, use_threads=False)
        except (OSError, MemoryError, ValueError, NotImplementedError) as error:  # pyarrow's errors are subclasses
            hint = error.hint if isinstance(error, RecordError) else "write the file, or download it, again"
            raise KfjobError(
                f"cannot read row group {group + 1} of `{path}`", location="data", cause=str(error), hint=hint
            ) from error

    def read(self, lane: int, lanes: int, offset: Offset) -> Reader:
        """Read the rows of a lane."""
        begin = self.lane_begin(lane, lanes) if offset is None else offset
        return _RowReader(self, begin, self.lane_begin(lane + 1, lanes))


class _RowReader(Reader):
    def __init__(self, files: ParquetFiles, begin: int, end: int) -> None:
        self._files, self._offset, self._end = files, begin, end
        self._records = self._read_from(begin)

    @property
    def offset(self) -> Offset:
        return self._offset

    def __next__(self) -> Any:
        while self._offset < self._end:
            row, record = self._offset, next(self._records)
            self._offset += 1
            if (item := extract_record(self._files.extract, record, partial(self._location, row))) is not None:
                return item
        self._records.close()
        raise StopIteration

    def _location(self, row: int) -> str:
        number, _, _ = self._files.groups[bisect_right(self._files.ends, row)]
        preceding = sum(rows for other, _, rows in self._files.groups if other < number)
        return f"row {row - preceding + 1} of `{self._files.paths[number]}`"

    def _read_from(self, row: int) -> Any:
        """Yield the records from a row to the end of the files."""
        first = bisect_right(self._files.ends, row)
        skip = row - (self._files.ends[first - 1] if first else 0)
        for number, group, expected in self._files.groups[first:]:
            count = 0
            for batch in self._files.read_group(number, group):
                count += batch.num_rows
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                yield from batch.slice(skip).to_pylist()
                skip = 0
            if count != expected:
                title = f"row group {group + 1} of `{self._files.paths[number]}` has {count} rows, its metadata says {expected}"
                raise KfjobError(title, location="data", hint="write the file, or download it, again")


def _count_rows_at_once(group: pyarrow.parquet.RowGroupMetaData, columns: Sequence[str]) -> int:
    """Return how many rows fit into `MAX_BATCH_BYTES`.

    Rows that share a value store it once, so each may take as much memory as the whole row group.

    Raises:
        RecordError: a value is larger than a record may be.
    """
    rows = _BATCH
    for chunk in map(group.column, range(group.num_columns)):
        size, values = chunk.total_uncompressed_size, max(1, chunk.num_values)
        if chunk.path_in_schema.split(".")[0] not in columns:
            continue
        check_size(size // values, MAX_RECORD_BYTES, f"a value of `{chunk.path_in_schema}`", "bytes")
        rows = max(1, min(rows, MAX_BATCH_BYTES // max(1, size)))
    return rows


def _group_sizes(path: Path) -> Iterator[int]:
    with open_file(path) as file:
        for group in range(file.num_row_groups):
            yield file.metadata.row_group(group).num_rows


def open_file(path: Path) -> pyarrow.parquet.ParquetFile:
    """Open the file without read-ahead.

    Raises:
        KfjobError: pyarrow is not installed, or the file is not Parquet.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise KfjobError(f"`{path}` needs pyarrow", location="data", hint="run `pip install pyarrow`") from error
    try:
        return pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise KfjobError(f"cannot read `{path}`", location="data", cause=str(error)) from error
