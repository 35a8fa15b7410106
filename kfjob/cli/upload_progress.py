"""A bar for what is being uploaded, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def shown() -> Iterator[Callable[[str, int, int], None]]:
    """What is to be told of each blob: its digest, the bytes that are there, how many there will be."""
    if not sys.stderr.isatty():
        yield lambda _digest, _done, _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(digest: str, done: int, size: int) -> None:
            if digest not in tasks:
                tasks[digest] = bars.add_task(digest.partition(":")[2][:12], total=size)
            bars.update(tasks[digest], completed=done, total=size)

        yield tell
