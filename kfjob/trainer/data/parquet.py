"""Parquet files as one sequence of rows, of which only the needed columns are read, row group by row group."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfjob.errors import KfjobError
from kfjob.trainer.data.source import Pick, Reader, Target, named, picked

if TYPE_CHECKING:
    import pyarrow.parquet

_BATCH = 64
"""Rows decoded at once; a lane keeps no more of a file in memory than these, and the pages they come from."""


class ParquetFiles:
    """Rows of several files; a place is the number of a row."""

    def __init__(self, paths: list[Path], *, columns: list[str], pick: Pick) -> None:
        """Read the files' footers.

        Raises:
            KfjobError: pyarrow is not there, or a file is no Parquet.
        """
        self.paths, self.pick = paths, pick
        self.name = named(paths)
        self.groups = [(number, group, rows) for number, path in enumerate(paths) for group, rows in enumerate(_rows(path))]
        self.ends = list(accumulate(rows for _, _, rows in self.groups))
        if not self.ends or not self.ends[-1]:
            raise KfjobError(f"{self.name} has no rows", location="data")
        self.identity: dict[str, Any] = {"kind": "rows", "files": len(paths), "rows": self.ends[-1]}
        with open_file(paths[0]) as file:
            names = file.schema_arrow.names
        self.columns = [name for name in columns if name in names] or names
        self._edges: dict[int, list[int]] = {}

    def lanes(self, wanted: int) -> int:
        """Rows can be cut anywhere."""
        return wanted

    def begin(self, lane: int, lanes: int) -> int:
        """The lane's first row, at the beginning of a row group where there are enough of them."""
        if lanes not in self._edges:
            shares = [self.ends[-1] * lane // lanes for lane in range(lanes + 1)]
            starts = [0, *self.ends]
            snapped = [starts[bisect_left(starts, share)] for share in shares]
            self._edges[lanes] = snapped if len(set(snapped)) == lanes + 1 else shares
        return self._edges[lanes][lane]

    def read(self, lane: int, lanes: int, place: Target) -> Reader:
        """The rows of a lane."""
        begin = self.begin(lane, lanes) if place is None else place
        return _Rows(self, begin, self.begin(lane + 1, lanes))


class _Rows(Reader):
    def __init__(self, files: ParquetFiles, begin: int, end: int) -> None:
        self._files, self._at, self._end = files, begin, end
        self._records = self._read(begin)

    @property
    def place(self) -> Target:
        return self._at

    def __next__(self) -> Any:
        while self._at < self._end:
            at, record = self._at, next(self._records)
            self._at += 1
            if (item := picked(self._files.pick, record, partial(self._where, at))) is not None:
                return item
        self._records.close()
        raise StopIteration

    def _where(self, row: int) -> str:
        number, _, _ = self._files.groups[bisect_right(self._files.ends, row)]
        before = sum(rows for other, _, rows in self._files.groups if other < number)
        return f"row {row - before + 1} of `{self._files.paths[number]}`"

    def _read(self, row: int) -> Any:
        """Records from a row on, for ever the next one."""
        first = bisect_right(self._files.ends, row)
        skip = row - (self._files.ends[first - 1] if first else 0)
        for number, group, _ in self._files.groups[first:]:
            with open_file(self._files.paths[number]) as file:
                for batch in file.iter_batches(_BATCH, row_groups=[group], columns=self._files.columns, use_threads=False):
                    if skip >= batch.num_rows:
                        skip -= batch.num_rows
                        continue
                    yield from batch.slice(skip).to_pylist()
                    skip = 0


def _rows(path: Path) -> Iterator[int]:
    with open_file(path) as file:
        for group in range(file.num_row_groups):
            yield file.metadata.row_group(group).num_rows


def open_file(path: Path) -> pyarrow.parquet.ParquetFile:
    """The file, not read ahead.

    Raises:
        KfjobError: pyarrow is not there, or the file is no Parquet.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise KfjobError(f"`{path}` needs pyarrow", location="data", hint="pip install pyarrow") from error
    try:
        return pyarrow.parquet.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise KfjobError(f"cannot read `{path}`", location="data", cause=str(error)) from error
