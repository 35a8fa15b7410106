"""Parquet files as one sequence of rows; only the needed columns are read, a few rows of one row group at a time.

`parquet_plan` decides before each row group how it can be read in little memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfjob.errors import KfjobError
from kfjob.trainer.data.content import fingerprint_files
from kfjob.trainer.data.parquet_plan import MAX_ROWS_BYTES, GroupPlan, measure_rows, plan_group
from kfjob.trainer.data.records import (
    MAX_RECORD_BYTES,
    Extract,
    Offset,
    OversizedError,
    Reader,
    describe_files,
    extract_record,
    record_error,
)
from kfjob.units import MIB

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

_BUFFER = 1 << 16


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
            schema = file.schema_arrow
        self.columns = [name for name in columns if name in schema.names] or schema.names
        self._lane_edges: dict[int, list[int]] = {}
        self._plans: dict[tuple[int, int], GroupPlan] = {}

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

    def read_group(self, number: int, group: int) -> Iterator[tuple[pa.RecordBatch, pa.Schema | None]]:
        """Yield the rows of a row group of the file with this number, in part encoded, and their types without the encoding.

        Raises:
            KfjobError: it would take too much memory, or is damaged.
        """
        path = self.paths[number]
        if (plan := self._plans.get((number, group))) is None:
            with open_file(path) as file:
                plan = self._plans[number, group] = plan_group(file, path, group, self.columns)
        try:
            with open_file(path, plan.encoded_columns) as file:
                for batch in file.iter_batches(plan.rows, row_groups=[group], columns=self.columns, use_threads=False):
                    yield batch, plan.schema
        except (OSError, MemoryError, ValueError, NotImplementedError) as error:  # pyarrow's errors are subclasses
            raise KfjobError(f"cannot read row group {group + 1} of `{path}`", location="data", cause=str(error)) from error

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
        offset = self._files.ends[first - 1] if first else 0
        for (number, group, _), end in zip(self._files.groups[first:], self._files.ends[first:], strict=True):
            for batch, schema in self._files.read_group(number, group):
                if row < offset + batch.num_rows:
                    yield from self._decode(batch.slice(max(0, row - offset)), schema, max(row, offset))
                offset += batch.num_rows
            if offset != end:
                title = (
                    f"row group {group + 1} of `{self._files.paths[number]}` has another number of rows than its metadata says"
                )
                raise KfjobError(title, location="data")

    def _decode(self, rows: pa.RecordBatch, schema: pa.Schema | None, number: int) -> Iterator[dict[str, Any]]:
        """Yield the records of rows; `number` is that of the first."""
        size = measure_rows(rows)
        if size > MAX_ROWS_BYTES and rows.num_rows > 1:
            for index in range(rows.num_rows):
                yield from self._decode(rows.slice(index, 1), schema, number + index)
            return
        if size > MAX_RECORD_BYTES and rows.num_rows == 1:
            limit = f"it takes {size // MIB:,} MiB, the limit is {MAX_RECORD_BYTES // MIB} MiB"
            raise record_error(self._location(number), OversizedError(limit))
        yield from _cast(rows, schema).to_pylist()


def _cast(rows: pa.RecordBatch, schema: pa.Schema | None) -> pa.RecordBatch:
    """Return the rows without the encoding."""
    if schema is None:
        return rows
    import pyarrow as pa

    columns = [column.cast(schema.field(name).type) for name, column in zip(rows.schema.names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _group_sizes(path: Path) -> Iterator[int]:
    with open_file(path) as file:
        for group in range(file.num_row_groups):
            yield file.metadata.row_group(group).num_rows


def open_file(path: Path, encoded_columns: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
    """Open the file without read-ahead; the values of `encoded_columns` stay numbers of a dictionary.

    Raises:
        KfjobError: pyarrow is not installed, or the file is not Parquet.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise KfjobError(f"`{path}` needs pyarrow", location="data", hint="run `pip install pyarrow`") from error
    try:
        return pyarrow.parquet.ParquetFile(path, read_dictionary=list(encoded_columns), buffer_size=_BUFFER, pre_buffer=False)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise KfjobError(f"cannot read `{path}`", location="data", cause=str(error)) from error
