"""What a source of records is to the lanes that read it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kfjob.errors import KfjobError

Target = Any
"""Where a record begins, in the source's own terms; JSON. None is the beginning of a lane."""
Pick = Callable[[Mapping[str, Any]], Any]
"""Takes what is needed out of a record; None leaves the record out. Raises LookupError, TypeError or ValueError."""


class Reader(ABC, Iterator[Any]):
    """The picked records of one lane, from a place on."""

    @property
    @abstractmethod
    def place(self) -> Target:
        """Where the next record begins."""


class Source(Protocol):
    """Records that can be read in lanes, each of them whole in one lane."""

    name: str
    """For messages."""
    identity: dict[str, Any]
    """What a kept place depends on."""

    def lanes(self, wanted: int) -> int:
        """How many lanes it can be read in: `wanted`, or the largest divisor of it that is possible."""

    def read(self, lane: int, lanes: int, place: Target) -> Reader:
        """The records of a lane from `place` on."""


def named(paths: Sequence[Path]) -> str:
    """A source of several files, for messages."""
    return f"`{paths[0]}`" if len(paths) == 1 else f"the {len(paths)} files of `{paths[0].parent}`"


def picked(pick: Pick, record: Mapping[str, Any], where: Callable[[], str]) -> Any:
    """What `pick` takes out of the record.

    Raises:
        KfjobError: naming the record by `where()`, with what is wrong with it.
    """
    try:
        return pick(record)
    except (LookupError, TypeError, ValueError) as error:
        raise unreadable(where(), error) from error


def unreadable(where: str, error: Exception) -> KfjobError:
    """The error for a record."""
    cause = error.args[0] if isinstance(error, LookupError) and error.args else error
    hint = "`data_format: chat` reads conversations" if "`messages`" in str(cause) else None
    return KfjobError(f"cannot read {where}", cause=str(cause), hint=hint)
