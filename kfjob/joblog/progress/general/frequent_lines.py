"""The lines that a program without progress repeats.

Lines that differ only in their numbers have one layout. The general reader knows no name in them, so nothing here is called
progress: it is for a user who knows better.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.progress.general.suggested_pattern import NUMBER

MAX_LAYOUTS = 16
"""Layouts that are counted; a new one replaces the one with the fewest lines."""
MAX_LENGTH = 200
"""Characters of a line; longer ones are no lines of progress."""


class Layout(Struct, frozen=True, kw_only=True):
    """Lines that differ only in their numbers."""

    first: str
    newest: str
    lines: int = 1


class FrequentLines(Struct, frozen=True):
    """The layouts of one container's lines. Its size does not grow with the log."""

    layouts: dict[str, Layout] = {}

    def add(self, text: str) -> FrequentLines:
        """Return the layouts with one more line."""
        text, _ = clean_line(text[: MAX_LENGTH + 1])
        text = text.strip()
        if len(text) > MAX_LENGTH or NUMBER.search(text) is None:
            return self
        key, layouts = NUMBER.sub("1", text), dict(self.layouts)
        if layout := layouts.get(key):
            layouts[key] = replace(layout, newest=text, lines=layout.lines + 1)
            return FrequentLines(layouts)
        if len(layouts) >= MAX_LAYOUTS:
            del layouts[min(layouts, key=lambda name: layouts[name].lines)]
        layouts[key] = Layout(first=text, newest=text)
        return FrequentLines(layouts)
