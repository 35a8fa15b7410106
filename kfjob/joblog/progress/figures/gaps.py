"""The marks between a name and a number, which say what the number is."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

from kfjob.joblog.progress.figures.names import precedes_loss, precedes_quote
from kfjob.joblog.progress.figures.tokens import Cursor


class After(Enum):
    """What stands before a gap."""

    START = auto()  # of the line
    WORD = auto()
    NUMBER = auto()
    OTHER = auto()  # a date, or the name of a type


class Gap(Struct):
    """The marks since the last word or number: they say what the next number is."""

    after: After = After.START
    marks: str = ""  # without spaces and quotes
    is_spaced: bool = False  # it ends with a space

    def add(self, mark: str) -> None:
        """Add a mark."""
        self.marks += mark
        self.is_spaced = False

    @property
    def separates(self) -> bool:
        """Whether a name ends here, and its value begins."""
        return ":" in self.marks or "=" in self.marks

    @property
    def place(self) -> Place:
        """The gap without its spaces."""
        return self.after, self.marks


Place = tuple[After, str]
_NUMBER_SIGN: Place = (After.START, "#")
"""`#10 loss 2.3`"""
FIRST: Place = (After.START, "")
"""`10 | loss 2.3`"""
_BRACKETS = frozenset(((After.NUMBER, "["), (After.NUMBER, "]["), (After.START, "["), (After.WORD, "[")))
"""`[10]`, `[1][10]`"""
_TUPLES = frozenset(((After.START, "("), (After.START, "[")))
"""`(10, 'loss', 2.3)`"""
VALUES = frozenset((After.NUMBER, marks) for marks in ("", ":", "=", "->"))
"""`Loss at step 100: 2.3`"""
VALUES_OF_PAIRS = frozenset((After.NUMBER, marks) for marks in (")=", "):", "]=", "]:"))
"""`loss (100): 2.3`, `loss [81-100]: 2.3`"""


def is_counter(place: Place, cursor: Cursor) -> bool:
    """Return whether a whole number without a name counts."""
    if place == FIRST:
        return cursor.separates() or precedes_loss(cursor)
    is_bracketed = place in _BRACKETS and cursor.closes()
    return place == _NUMBER_SIGN or is_bracketed or (place in _TUPLES and precedes_quote(cursor))
