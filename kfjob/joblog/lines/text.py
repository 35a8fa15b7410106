"""Log lines as plain text: short enough to search, without colours and without the prefixes that log tools add."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec.structs import replace

from kfjob.base.printable import NARROW_SEQUENCE
from kfjob.joblog.events import LogLine, OpenLine
from kfjob.joblog.lines.prefixes import strip_stamps

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


def clean_line(text: str) -> tuple[str, int | None]:
    """Return the line without colours, line end and prefixes of kubectl or containerd, and the time in such a prefix."""
    text = cut_line(text)
    if "\x1b" in text:
        text = NARROW_SEQUENCE.sub("", text)
    text = text.rstrip("\r\n")
    return strip_stamps(text)
