"""A job that is there already, taken in hand: its backend is asked while what reads the answer is imported."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.api.config import Settings, settings_here
from kfjob.api.place import Notice, Place, place_of
from kfjob.backends.background import begun
from kfjob.errors import NotFound

if TYPE_CHECKING:
    from kfjob.api.run import Run


def _silent(_text: str) -> None:
    """Notices are for terminals."""


def attach(
    job: str,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notice: Notice = _silent,
) -> Run:
    """Take an existing job in hand; one that was stopped, from the archive.

    Raises:
        NotFound: neither the backend nor the archive knows it.
    """
    at = place_of(job, settings or settings_here(backend=backend, context=context, namespace=namespace), notice=notice)
    assert at.backend  # opened by this thread, for two that import would wait for each other  # noqa: S101
    looked = time.monotonic()
    answer = begun(lambda: at.look(job))
    from kfjob.api import expectations
    from kfjob.api.run import Run
    from kfjob.api.stop import ref_of

    try:
        snapshot = answer.result()
    except NotFound as err:
        return _from_archive(at, job, err, notice)
    return Run(at, ref_of(at, snapshot), expectations.of_snapshot(snapshot), _attached=[(looked, snapshot)])


def from_folder(path: Path, *, settings: Settings) -> Run:
    """A Run over a folder of saved logs: what it can answer, it answers; there is nothing to stop or to wait for."""
    return _kept(path, Place(settings, "local", "default"))


def _from_archive(at: Place, job: str, error: NotFound, notice: Notice) -> Run:
    from kfjob.api import archive

    try:
        left = archive.newest(archive.archive_root(at.settings), at.namespace, job)
    except NotFound:
        raise error from None
    notice(f"`{job}` is gone, this is the archive of its last launch: {left}")
    return _kept(left, at)


def _kept(path: Path, at: Place) -> Run:
    from kfjob.api import expectations
    from kfjob.api.archive import Archived
    from kfjob.api.run import Run
    from kfjob.api.stop import ref_of

    kept = Archived(path)
    snapshot = kept.snapshot()
    return Run(at, ref_of(Place(at.settings, "local", "default"), snapshot), expectations.of_snapshot(snapshot), kept)
