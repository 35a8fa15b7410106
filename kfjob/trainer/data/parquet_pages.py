"""Reads the headers of Parquet pages: what a column takes in memory is known before a page is decompressed.

No reader checks the sizes in a file's footer. The header of a page is different: Arrow allocates the size in it and refuses a
page that decompresses to another one (arrow cpp/src/parquet/column_reader.cc, `DecompressIfNeeded`). The headers are Thrift
structs in the compact protocol (apache/parquet-format, parquet.thrift and Encodings.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfjob.units import KIB, MIB

_MAX_HEADER_BYTES = 16 * MIB
"""Size of a page's header, as in Arrow; its statistics may hold two values."""
_FIRST_READ = 4 * KIB
_MAX_NESTING = 8
"""Nested structs of a page's header; the format has three."""
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_HEADERS = {_DATA: 5, _DICTIONARY: 7, _DATA_V2: 8}
"""The field of a page's header that describes a page of this type."""
_I32, _STRUCT = 5, 12
"""Types of the compact protocol that the sizes and the parts of a header have."""


class PageError(ValueError):
    """The bytes at an offset are not the header of a page."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What the header of a page says."""

    is_dictionary: bool
    size: int
    """Bytes without compression."""
    compressed_size: int
    values: int
    encoding: int


def read_pages(path: Path, begin: int, size: int, values: int) -> Iterator[Page]:
    """Yield the pages of a column chunk until its bytes end or the pages have as many values as its metadata says.

    Raises:
        PageError: a header is damaged.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        offset, end, seen = begin, begin + size, 0
        while offset < end and seen < values:
            header, length = _read_header(file, offset)
            page = _parse_page(header)
            if page is not None:
                seen += 0 if page.is_dictionary else page.values
                yield page
            offset += length + _get_count(header, 3)


def _read_header(file: Any, offset: int) -> tuple[dict[int, Any], int]:
    """Return the fields of the header at an offset, and the bytes that it takes."""
    size = _FIRST_READ
    while True:
        file.seek(offset)
        content = file.read(size)
        try:
            return _Reader(content).read_struct_and_size()
        except IndexError:
            if len(content) < size or size >= _MAX_HEADER_BYTES:
                raise PageError("a page's header is cut off") from None
            size = min(16 * size, _MAX_HEADER_BYTES)


def _parse_page(header: dict[int, Any]) -> Page | None:
    """Return the page of a header; None if it is an index page, which Arrow skips."""
    kind = _get_count(header, 1)
    if kind not in _HEADERS:
        return None
    details = header.get(_HEADERS[kind])
    if not isinstance(details, dict):
        raise PageError("a page's header has no number of values")
    return Page(
        is_dictionary=kind == _DICTIONARY,
        size=_get_count(header, 2),
        compressed_size=_get_count(header, 3),
        values=_get_count(details, 1),
        encoding=_get_count(details, 4 if kind == _DATA_V2 else 2),
    )


def _get_count(fields: dict[int, Any], number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise PageError("a page's header has no valid size")
    return value


class _Reader:
    """Reads Thrift's compact protocol; raises IndexError at the end of the bytes."""

    def __init__(self, content: bytes) -> None:
        self._content, self._offset = content, 0

    def read_struct_and_size(self) -> tuple[dict[int, Any], int]:
        return self._read_struct(_MAX_NESTING), self._offset

    def _read_struct(self, levels: int) -> dict[int, Any]:
        """Return the 32-bit integers and the structs by field number; Arrow too ignores fields of another type."""
        if not levels:
            raise PageError("a page's header is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while (start := self._read_byte()) != 0:
            delta, kind = start >> 4, start & 15
            number = number + delta if delta else self._read_signed()
            value = self._read_value(kind, levels)
            if kind in (_I32, _STRUCT):
                fields[number] = value
        return fields

    def _read_value(self, kind: int, levels: int) -> Any:
        match kind:
            case 1 | 2:  # a Boolean is its own type
                return None
            case 3:  # a byte
                return self._skip(1)
            case 4 | 5 | 6:  # integers
                return self._read_signed()
            case 7:  # a double
                return self._skip(8)
            case 8:  # a binary
                return self._skip(self._read_varint())
            case 12:  # a struct
                return self._read_struct(levels - 1)
        raise PageError("a page's header has a field of an unknown type")  # the format has no lists or maps there

    def _read_byte(self) -> int:
        byte = self._content[self._offset]
        self._offset += 1
        return byte

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise PageError("a page's header has a number of more than 64 bits")

    def _read_signed(self) -> int:
        value = self._read_varint()
        return value >> 1 ^ -(value & 1)

    def _skip(self, size: int) -> None:
        if self._offset + size > len(self._content):
            raise IndexError
        self._offset += size
