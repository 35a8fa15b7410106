"""Lines that look like progress although none counts, and a `progress:` pattern that reads them."""

from __future__ import annotations

import re

from msgspec import Struct

from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.meanings import Quantity, find_meaning, split_name
from kfjob.joblog.progress.formats import custom_format
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.general.templates import Template

MIN_UNREAD = 3
"""kfjob suggests a pattern after this number of lines of one layout."""
_NAMED = Pattern(r"([A-Za-z][\w/.-]{0,40})([^\w\n]{1,8})([-+]?(?:\d[\d.,]*(?:[eE][-+]?\d+)?|(?i:nan|inf)\w*))")
_STEP, _NUMBER = r"(?P<step>\d+)", r"(?P<loss>[-+]?(?:[\d.]+(?:[eE][-+]?\d+)?|(?i:nan|inf)\w*))"


class UnreadLines(Struct, frozen=True, kw_only=True):
    """Lines of one layout that do not count as progress."""

    example: str
    lines: int
    pattern: str | None = None  # it matches every remembered line

    def __str__(self) -> str:
        """Return `lines like X look like progress`, with the pattern that reads them."""
        return f"lines like `{self.example}` look like progress{f'; {self.advice}' if self.advice else ''}"

    @property
    def values(self) -> str:
        """What the pattern reads: the lines, or only one value in them."""
        names = Pattern(self.pattern).names if self.pattern else {}
        return "them" if {"step", "loss"} <= names.keys() else "only their loss" if "loss" in names else "only their step"

    @property
    def advice(self) -> str:
        """The pattern and what it reads; "" without a pattern."""
        return f"`progress: '{self.pattern}'` in the spec reads {self.values}" if self.pattern else ""


def find_unread(reader: ReaderState, *, min_lines: int = MIN_UNREAD) -> UnreadLines | None:
    """Return the most frequent layout that looks like progress; None if progress was read, or if no line looks like it."""
    if reader.primary is not None:
        return None
    candidates = [item for item in reader.templates.values() if not item.confirmed and item.lines >= min_lines]
    template = max(candidates, key=lambda item: item.lines, default=None)
    if template is None:
        return None
    return UnreadLines(example=template.example, lines=template.lines, pattern=suggest_pattern(template))


def suggest_pattern(template: Template) -> str | None:
    """Return a pattern that reads all remembered lines of the template; None if none of the simple ones does."""
    parts = []
    for quantity, group in ((Quantity.STEP, _STEP), (Quantity.LOSS, _NUMBER)):
        for match in _NAMED.find_all(template.example):
            meaning = find_meaning(split_name(match[1]))
            if meaning and meaning.quantity is quantity:
                parts.append((len(match.before), rf"{re.escape(match[1])}[^\w\n]+{group}"))
                break
    if not parts:
        return None
    pattern = ".*?".join(text for _, text in sorted(parts))
    custom = custom_format(pattern)
    return pattern if all(custom(sample.text) for sample in template.samples) else None
