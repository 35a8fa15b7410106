"""Progress bars for uploads, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UpdateBar = Callable[[str, int, int], None]
"""Receives a blob's digest, the number of bytes that the registry has, and the blob's size."""


@contextmanager
def show_uploads() -> Iterator[UpdateBar]:
    """Show a bar for each blob while the context is open; without a terminal, show nothing."""
    if not sys.stderr.isatty():
        yield lambda _digest, _done, _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    from kfjob.cli.clean_console import CleanConsole

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=CleanConsole(), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def update(digest: str, done: int, size: int) -> None:
            if digest not in tasks:
                tasks[digest] = bars.add_task(digest.partition(":")[2][:12], total=size)
            bars.update(tasks[digest], completed=done, total=size)

        yield update
