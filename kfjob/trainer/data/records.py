"""The protocol of a source of records, which lanes read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kfjob.base.errors import KfjobError
from kfjob.base.units import MIB

NO_OBJECT = "it is not a JSON object; each line of a .jsonl file is one, without `[`, `]` and commas between them"
"""The cause when a record is another JSON value."""
MAX_RECORD_BYTES = 64 * MIB
"""Size of a line of training data, or of a value in a Parquet file; novels have up to 10 MiB, 60 MiB with JSON escapes."""
MAX_DOCUMENT_CHARACTERS = 32 * MIB
"""Characters of a document or a conversation; a tokenizer takes 170 bytes of memory for each of them."""
DIVIDE_HINT = "divide it into several records"
Offset = Any
"""The JSON value with which a source finds a record again; None is the beginning of a lane."""
Extract = Callable[[Mapping[str, Any]], Any]
"""Returns the part of a record that is needed; None skips it. Raises LookupError, TypeError or ValueError."""


class RecordError(ValueError):
    """A record cannot be used."""

    def __init__(self, cause: str, *, hint: str | None = None) -> None:
        """Keep what the user can do, `hint`, with the cause."""
        super().__init__(cause)
        self.hint = hint


def check_size(size: int, limit: int, name: str, unit: str) -> None:
    """Check the size of `name`, a part of a record.

    Raises:
        RecordError: it is larger than the limit.
    """
    if size > limit:
        raise RecordError(f"{name} has {size:,} {unit}, the limit is {limit:,}", hint=DIVIDE_HINT)


def count_characters(value: Any) -> int:
    """Return the number of characters in a record: of a text, or of all texts in a value of JSON."""
    count, values = 0, [value]
    while values:
        part = values.pop()
        if isinstance(part, str):
            count += len(part)
        elif isinstance(part, Mapping):
            values += part.values()
        elif isinstance(part, list):
            values += part
    return count


class Reader(ABC, Iterator[Any]):
    """Iterates over the extracted records of one lane."""

    @property
    @abstractmethod
    def offset(self) -> Offset:
        """The offset of the next record."""


class Source(Protocol):
    """Records that can be read in lanes; every record belongs to exactly one lane."""

    name: str
    """The name that messages use."""
    identity: dict[str, Any]
    """What an offset depends on: if it changes, stored offsets are invalid."""

    def lane_count(self, requested: int) -> int:
        """Return the number of lanes: `requested`, or its largest divisor that the source supports."""

    def read(self, lane: int, lanes: int, offset: Offset) -> Reader:
        """Read the records of a lane from `offset` on."""


def describe_files(paths: Sequence[Path]) -> str:
    """Return the name of a source of these files, for messages."""
    return f"`{paths[0]}`" if len(paths) == 1 else f"the {len(paths)} files of `{paths[0].parent}`"


def extract_record(extract: Extract, record: Mapping[str, Any], location: Callable[[], str]) -> Any:
    """Return `extract(record)`.

    Raises:
        KfjobError: `extract` refused the record; the message names `location()`.
    """
    try:
        return extract(record)
    except (LookupError, TypeError, ValueError) as error:
        raise record_error(location(), error) from error


def record_error(location: str, error: Exception) -> KfjobError:
    """Return the error for an unreadable record."""
    cause = error.args[0] if isinstance(error, LookupError) and error.args else error
    hint = error.hint if isinstance(error, RecordError) else None
    return KfjobError(f"cannot read {location}", cause=str(cause), hint=hint)
