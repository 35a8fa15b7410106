"""rich on standard error: a console that cleans and redacts text from outside, and progress bars for uploads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from kfjob.base.printable import clean_text
from kfjob.cli.output import find_stream, redact

UpdateBar = Callable[[str, int, int], None]
"""Receives a blob's digest, the number of bytes that the registry has, and the blob's size."""


class CleanConsole(Console):
    """Writes without secrets, and without terminal sequences and control characters that are not its own."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to `stream`, or to standard error."""
        super().__init__(file=find_stream(stream or sys.stderr), highlight=False)

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


@contextmanager
def show_uploads() -> Iterator[UpdateBar]:
    """Show a bar for each blob while the context is open; without a terminal, show nothing."""
    if not sys.stderr.isatty():
        yield lambda _digest, _done, _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=CleanConsole(), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(digest: str, done: int, size: int) -> None:
            if digest not in tasks:
                tasks[digest] = bars.add_task(digest.partition(":")[2][:12], total=size)
            bars.update(tasks[digest], completed=done, total=size)

        yield update
