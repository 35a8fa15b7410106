"""Decides how a row group of a Parquet file can be read in little memory, and refuses one that cannot.

A value that many rows share is stored once, in a dictionary, and a page of equal values takes no bytes: some hundred bytes can
stand for gigabytes. So a column with a large dictionary stays encoded until its rows are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfjob.errors import KfjobError
from kfjob.text import plural
from kfjob.trainer.data.parquet_pages import Page, PageError, read_pages
from kfjob.trainer.data.records import MAX_RECORD_BYTES
from kfjob.units import GIB, MIB

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet

MAX_ROWS_BYTES = 256 * MIB
"""Size of the rows of a Parquet file that become Python objects at once; larger ones follow one by one."""
MAX_PAGE_BYTES = GIB
"""Size of a Parquet page without its compression; a page of 1000 books has 400 MiB."""
MAX_PAGE_VALUES = 32 << 20
"""Values of a Parquet page, and of a list column in a row group; a million conversations have ten million messages."""
MAX_EXPANSION = 250
"""Ratio of the sizes of a page of more than 64 MiB without and with compression; text reaches 20."""
_ROWS, _ENCODED_ROWS = 64, 256
"""Rows to decode at once; more of them from encoded columns, because each batch has a copy of the dictionary."""
_OBJECT_SIZE = 64
"""Bytes that a value takes as a Python object."""
_PLAIN, _PLAIN_DICTIONARY, _DELTA_BYTE_ARRAY, _RLE_DICTIONARY = 0, 2, 7, 8
_CAN_STAY_ENCODED = {_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY}


@dataclass(frozen=True, kw_only=True)
class GroupPlan:
    """How to read a row group."""

    encoded_columns: tuple[str, ...]
    """The leaf columns whose values stay numbers of a dictionary until they are measured."""
    rows: int
    """Rows to decode at once."""
    schema: pa.Schema | None
    """The types of the columns without the encoding; None if no column stays encoded."""


def plan_group(file: pyarrow.parquet.ParquetFile, path: Path, group: int, columns: Sequence[str]) -> GroupPlan:
    """Return how to read some columns of a row group.

    Raises:
        KfjobError: the row group would take too much memory, or is damaged.
    """
    encoded_columns, rows = [], _ROWS
    metadata = file.metadata.row_group(group)
    for number in range(metadata.num_columns):
        chunk, leaf = metadata.column(number), file.schema.column(number)
        if not any(f"{chunk.path_in_schema}.".startswith(f"{name}.") for name in columns):
            continue
        try:
            layout = _read_layout(path, chunk, leaf)
        except (PageError, OverflowError) as error:
            raise KfjobError(
                f"cannot read row group {group + 1} of `{path}`",
                location="data",
                cause=f"column `{chunk.path_in_schema}`: {error}",
                hint="if the file is genuine, write it again with smaller row groups; otherwise download it again",
            ) from error
        if layout.can_stay_encoded and layout.is_large(rows):
            encoded_columns.append(chunk.path_in_schema)
        else:
            rows = max(1, min(rows, MAX_ROWS_BYTES // max(1, layout.largest_shared_value)))
    if not encoded_columns:
        return GroupPlan(encoded_columns=(), rows=rows, schema=None)
    rows = _ENCODED_ROWS if rows == _ROWS else rows
    return GroupPlan(encoded_columns=tuple(encoded_columns), rows=rows, schema=file.schema_arrow)


@dataclass(frozen=True, kw_only=True)
class _Layout:
    largest_shared_value: int
    """The size of a value that several rows can share, at most."""
    values: int
    is_list: bool
    can_stay_encoded: bool

    def is_large(self, rows: int) -> bool:
        """Return whether some rows can take more memory than rows may take at once."""
        return self.largest_shared_value * (self.values if self.is_list else min(rows, self.values)) > MAX_ROWS_BYTES


def _read_layout(path: Path, chunk: Any, leaf: Any) -> _Layout:
    """Read the headers of a column chunk.

    Raises:
        PageError: it is damaged or would take too much memory.
    """
    begin = chunk.data_page_offset
    if chunk.dictionary_page_offset:
        begin = min(begin, chunk.dictionary_page_offset)
    shared, values, encodings = 0, 0, set()
    for page in read_pages(path, begin, chunk.total_compressed_size, chunk.num_values):
        _check_page(page)
        if page.is_dictionary or page.encoding == _DELTA_BYTE_ARRAY:  # whose values share their beginnings
            shared = max(shared, page.size)
        if not page.is_dictionary:
            values += page.values
            encodings.add(page.encoding)
        if leaf.max_repetition_level and values > MAX_PAGE_VALUES:
            raise PageError(f"its lists have more than {MAX_PAGE_VALUES:,} values")
    is_text = leaf.physical_type == "BYTE_ARRAY"
    return _Layout(
        largest_shared_value=shared if is_text else max(0, leaf.length or 0),
        values=values,
        is_list=bool(leaf.max_repetition_level),
        can_stay_encoded=is_text and encodings <= _CAN_STAY_ENCODED,
    )


def _check_page(page: Page) -> None:
    """Check the size of a page.

    Raises:
        PageError: it would take too much memory.
    """
    size = f"a page has {plural(page.compressed_size, 'byte')}, and {page.size:,} without compression"
    if page.size > MAX_PAGE_BYTES:
        raise PageError(f"{size}; the limit is {MAX_PAGE_BYTES:,}")
    if page.size > MAX_RECORD_BYTES and page.size > MAX_EXPANSION * page.compressed_size:
        raise PageError(f"{size}, more than {MAX_EXPANSION} times as many")
    if page.size > MAX_RECORD_BYTES * max(1, page.values):
        raise PageError(f"{size}, for {plural(page.values, 'value')}; a value has at most {MAX_RECORD_BYTES:,}")
    if page.values > MAX_PAGE_VALUES:
        raise PageError(f"a page has {page.values:,} values; the limit is {MAX_PAGE_VALUES:,}")


def measure_rows(rows: pa.RecordBatch) -> int:
    """Return the bytes that rows take at least as Python objects."""
    return sum(_measure(column) for column in rows.columns)


def _measure(array: Any) -> int:
    size = len(array) * _OBJECT_SIZE
    if not array.type.num_fields and not hasattr(array.type, "index_type"):
        return size + int(array.nbytes)
    import pyarrow.compute
    from pyarrow import types

    if types.is_dictionary(array.type) and not types.is_primitive(array.type.value_type):
        lengths = pyarrow.compute.binary_length(array.dictionary)
        return size + int(pyarrow.compute.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_struct(array.type):
        return size + sum(_measure(field) for field in array.flatten())
    if types.is_list(array.type) or types.is_large_list(array.type) or types.is_map(array.type):
        return size + _measure(array.flatten())
    return size + int(array.nbytes)
