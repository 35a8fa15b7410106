"""Pins: a checkpoint that someone reads is not deleted by the run that wrote it.

A reader writes `.pin-NAME-TOKEN` before it verifies a checkpoint, a writer `.deleting-NAME` before it looks for pins. Each
looks for the file of the other after writing its own, so at least one of them sees the other and gives way.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from os import getpid

from kfjob.base.errors import KfjobError
from kfjob.base.parsing import parse_json
from kfjob.trainer.metrics import log
from kfjob.trainer.process_identity import ProcessIdentity, identify_process
from kfjob.trainer.storage import Storage

LIFETIME_SECONDS = 24 * 3600.0
"""Lifetime of another machine's pin on a checkpoint; its reader may have been killed."""


@contextmanager
def pin(storage: Storage, name: str) -> Iterator[None]:
    """Keep a checkpoint from being deleted during the block; without write access it is not protected.

    Raises:
        KfjobError: the checkpoint is being deleted.
    """
    file = f".pin-{name}-{secrets.token_hex(4)}"
    try:
        storage.write_file(
            file, json.dumps({"time": time.time(), "process": asdict(identify_process(getpid()))}), overwrite=True
        )
    except KfjobError as error:
        log.debug("Checkpoint %s is not protected from deletion: %s", name, error.title)
        yield
        return
    try:
        if storage.read_file(f".deleting-{name}") is not None:
            raise KfjobError(f"checkpoint `{storage.location}/{name}` is being deleted", location="resume")
        yield
    finally:
        with suppress(KfjobError):
            storage.remove_file(file)


@contextmanager
def keep_readers_out(storage: Storage, name: str) -> Iterator[bool]:
    """Yield whether nobody reads a checkpoint; during the block nobody can begin to."""
    storage.write_file(f".deleting-{name}", "", overwrite=True)
    try:
        yield not any(_is_valid(storage, file) for file in storage.list_files(f".pin-{name}-"))
    finally:
        storage.remove_file(f".deleting-{name}")


def delete_unless_pinned(storage: Storage, name: str) -> None:
    """Delete a checkpoint that nobody reads."""
    with keep_readers_out(storage, name) as is_free:
        if is_free:
            storage.delete(name)


def _is_valid(storage: Storage, file: str) -> bool:
    """Return whether the reader of a pin may still live; remove the pin otherwise."""
    try:
        content = parse_json(storage.read_file(file) or "")
        state = ProcessIdentity(**content["process"]).state
        is_recent = abs(time.time() - content["time"]) < LIFETIME_SECONDS
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):  # not complete yet, or of another program
        return True
    if state == "running" or (state == "unknown" and is_recent):
        return True
    storage.remove_file(file)
    return False
