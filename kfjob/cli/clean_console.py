"""A console of rich for live displays: it moves the cursor itself, and cleans and redacts text from outside."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from kfjob.base.printable import clean_text
from kfjob.cli.output import find_stream, redact


class CleanConsole(Console):
    """Writes to standard error, without secrets, and without terminal sequences and control characters that are not its own."""

    def __init__(self) -> None:
        super().__init__(file=find_stream(sys.stderr), highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of a renderable with clean text."""
        if isinstance(renderable, Text):  # before it is cut and wrapped
            renderable = _redact(renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean_text(segment.text), segment.style)


def _redact(text: Text) -> Text:
    """Return the text without secrets; one that has none keeps the styles of its parts."""
    plain = redact(text.plain)
    if plain == clean_text(text.plain):
        return text
    return Text(plain, text.style, justify=text.justify, overflow=text.overflow, no_wrap=text.no_wrap, end=text.end)
