"""A console of rich for live displays: it moves the cursor itself, and cleans the text of others."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kfjob.cli.output import find_stream
from kfjob.printable import clean_text


class CleanConsole(Console):
    """Writes to standard error, without terminal sequences and control characters that are not its own."""

    def __init__(self) -> None:
        super().__init__(file=find_stream(sys.stderr), highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of a renderable with clean text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(clean_text(segment.text), segment.style)
