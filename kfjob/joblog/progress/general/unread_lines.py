"""Lines that look like progress although none counts, and a `progress:` pattern that reads them."""

from __future__ import annotations

from msgspec import Struct

from kfjob.base.patterns import Pattern
from kfjob.joblog.progress.general.frequent_lines import FrequentLines, Layout
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.general.suggested_pattern import LOSS, STEP, suggest_pattern

MIN_UNREAD = 3
"""kfjob suggests a pattern after this number of lines of one layout that look like progress."""
MIN_GUESS = 10
"""The same for lines that do not: a table of results changes its numbers too, and ends earlier."""
EXAMPLE = f"'{STEP} {LOSS}'"
"""A pattern for lines without one: what its groups look like."""


class UnreadLines(Struct, frozen=True, kw_only=True):
    """Lines of one layout that do not count as progress."""

    example: str
    lines: int
    pattern: str | None = None  # it matches every remembered line
    is_guess: bool = False  # only a number in them changes: they may be anything

    def __str__(self) -> str:
        """Return `lines like X look like progress`, with the pattern that reads them."""
        if self.is_guess:
            advice = self.advice or f"name the numbers in them with `progress:` in the spec, as in `progress: {EXAMPLE}`"
            return f"if lines like `{self.example}` are progress, {advice}"
        return f"lines like `{self.example}` look like progress{f'; {self.advice}' if self.advice else ''}"

    @property
    def values(self) -> str:
        """What the pattern reads: the lines, or only one value in them."""
        names = Pattern(self.pattern).names if self.pattern else {}
        return "them" if {"step", "loss"} <= names.keys() else "only their loss" if "loss" in names else "only their step"

    @property
    def advice(self) -> str:
        """The pattern and what it reads; "" without a pattern."""
        return f"`progress: {quote_pattern(self.pattern)}` in the spec reads {self.values}" if self.pattern else ""


def quote_pattern(pattern: str) -> str:
    """Return the pattern as a scalar of YAML."""
    return "'" + pattern.replace("'", "''") + "'"


def find_unread(reader: ReaderState, *, min_lines: int = MIN_UNREAD) -> UnreadLines | None:
    """Return the most frequent layout that looks like progress; None if progress was read, or if no line looks like it."""
    if reader.primary is not None:
        return None
    candidates = [item for item in reader.templates.values() if not item.confirmed and item.lines >= min_lines]
    template = max(candidates, key=lambda item: item.lines, default=None)
    if template is None:
        return None
    pattern = suggest_pattern([sample.text for sample in template.samples])
    return UnreadLines(example=template.example, lines=template.lines, pattern=pattern)


def guess_unread(frequent: FrequentLines, *, min_lines: int = MIN_GUESS) -> UnreadLines | None:
    """Return the repeated lines of a program that most likely are its progress; None if no number in a layout changes."""
    layouts = [item for item in frequent.layouts.values() if item.lines >= min_lines and item.first != item.newest]
    found = [(item, suggest_pattern((item.first, item.newest))) for item in layouts]
    layout, pattern = max(found, key=lambda item: _rank(*item), default=(None, None))
    if layout is None:
        return None
    return UnreadLines(example=layout.newest, lines=layout.lines, pattern=pattern, is_guess=True)


def _rank(layout: Layout, pattern: str | None) -> tuple[int, bool, int]:
    """Return how likely a layout is that of progress: with a step and a loss, with a step, with any pattern."""
    has_step, has_loss = ("<step>" in (pattern or ""), "<loss>" in (pattern or ""))
    return 2 * has_step + has_loss, has_step, layout.lines
