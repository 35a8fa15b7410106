"""The text of a log line: the part of it to search, and the numbers in it.

Numbers have limits that keep every calculation with them finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from kfjob.joblog.events import LogLine, OpenLine

TRACEBACK_HEADING = "Traceback (most recent call last)"
"""The first line of a Python traceback, without the colon."""
_FIRST_CHARACTERS = 1024
"""Characters of the first states of a redrawn progress bar to search."""
L = TypeVar("L", bound=LogLine | OpenLine)
MATCHED_CHARACTERS = 4096
"""Characters of a line to search; no line of a trainer, an agent or an error needs more."""


def cut_line(text: str) -> str:
    """Return the part of a line to search: its beginning, or the first and the newest states of a redrawn progress bar."""
    if len(text) <= MATCHED_CHARACTERS:
        return text
    text = text.rstrip("\r\n")
    first = text[: text.rfind("\r", 0, _FIRST_CHARACTERS) + 1]
    length = MATCHED_CHARACTERS - len(first)
    redrawn = max(text.find("\r", len(text) - length) + 1 or text.rfind("\r") + 1, len(first))
    return first + text[redrawn : redrawn + length]


def find_newest_state(text: str, is_state: Callable[[str], object]) -> str | None:
    """Return the newest part of a redrawn line, between carriage returns, that is a state; None if there is no such part."""
    return next((part for part in reversed(text.split("\r")) if is_state(part)), None)


def shorten_line(event: L) -> L:
    """Return the event with the part of its line to search."""
    return event if len(event.text) <= MATCHED_CHARACTERS else replace(event, text=cut_line(event.text))


MAX_COUNT = 10**18
"""Steps, samples or parameters of a job."""
MAX_NUMBER = 1e100
"""Number in a line; a larger one counts as infinite, because sums and squares would overflow."""
_DIGITS = bytes.maketrans(b"023456789", b"1" * 9)


def mask_digits(line: bytes) -> bytes:
    """Return the line with the same digit in place of every digit; `str.translate` takes 10 times as long."""
    return line.translate(_DIGITS)


def parse_number(text: str) -> float:
    """Return the number in the text, which may have commas; infinite beyond `MAX_NUMBER`.

    Raises:
        ValueError: the text is not a number.
    """
    value = float(text.replace(",", ""))
    return math.copysign(math.inf, value) if abs(value) > MAX_NUMBER else value


def parse_count(text: str) -> int | None:
    """Return the whole number in the text; None if it is not finite or too large.

    Raises:
        ValueError: the text is not a number.
    """
    return to_count(parse_number(text))


def to_count(value: float | None) -> int | None:
    """Return the number as a whole one; None if it is not finite or too large."""
    return None if value is None or not abs(value) < MAX_COUNT else int(value)
