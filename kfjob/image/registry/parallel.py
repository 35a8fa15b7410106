"""Run transfers in parallel: one connection seldom uses the whole bandwidth to a registry, and images have many layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from kfjob.base.concurrency import map_parallel
from kfjob.image.registry.uploads import ReportProgress, ignore_progress

TRANSFER_THREADS = 4
"""Layers to transfer at the same time; each holds a chunk or two in memory, and ECR throttles clients that send
much more in parallel."""

T = TypeVar("T")
Transfer = Callable[[ReportProgress], T]


class _Cancelled(Exception):
    """Another transfer has failed."""


def run_transfers(
    transfers: Sequence[Transfer[T]], *, progress: ReportProgress = ignore_progress, threads: int = TRANSFER_THREADS
) -> list[T]:
    """Return the results of the transfers, in order. `progress` is called by one thread at a time.

    Raises:
        Exception: the first exception of a transfer. Before it is raised, the running transfers end with their current chunk;
            the others do not begin.
    """
    cancelled, lock = threading.Event(), threading.Lock()

    def report(digest: str, done: int, size: int) -> None:
        if cancelled.is_set():
            raise _Cancelled
        with lock:
            progress(digest, done, size)

    def run(transfer: Transfer[T]) -> T:
        return transfer(report)

    return map_parallel(run, transfers, threads=threads, name="transfer", stop=cancelled)
