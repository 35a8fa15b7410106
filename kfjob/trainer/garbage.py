"""Garbage collection at the same steps on all ranks: a rank that collects alone makes the others wait for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

STEPS_BETWEEN_COLLECTIONS = 50
"""A step creates few reference cycles; collecting the young ones takes a few milliseconds (torchtitan's interval)."""


@contextmanager
def collect_by_schedule() -> Iterator[None]:
    """Disable automatic collection in the block, and exempt the objects that exist before it."""
    gc.collect()
    gc.freeze()
    try:
        with pause_collection():
            yield
    finally:
        gc.unfreeze()


@contextmanager
def pause_collection() -> Iterator[None]:
    """Disable automatic collection in the block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collect_if_due(step: int) -> None:
    """Collect the young objects after each `STEPS_BETWEEN_COLLECTIONS` steps."""
    if step % STEPS_BETWEEN_COLLECTIONS == 0:
        gc.collect(1)
