"""A job that is there already, taken in hand: its backend is asked while what reads the answer is imported."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from kfjob.api.config import Settings, settings_here
from kfjob.api.place import Notice, Place, place_of, silent
from kfjob.errors import NotFound
from kfjob.events import JobSnapshot

if TYPE_CHECKING:
    from kfjob.api.run import Run


def attach(
    job: str,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    notice: Notice = silent,
) -> Run:
    """Take an existing job in hand; one that was stopped, from the archive.

    Raises:
        NotFound: neither the backend nor the archive knows it.
    """
    at = place_of(job, settings or settings_here(backend=backend, context=context, namespace=namespace), notice=notice)
    assert at.backend  # opened by this thread, for two that import would wait for each other  # noqa: S101
    looked = time.monotonic()
    answer = _begun(at, job)
    from kfjob.api import expectations
    from kfjob.api.run import Run
    from kfjob.api.stop import ref_of

    try:
        snapshot = answer.result()
    except NotFound as err:
        return _from_archive(at, job, err, notice)
    return Run(at, ref_of(at, snapshot), expectations.of_snapshot(snapshot), _attached=[(looked, snapshot)])


def _begun(at: Place, job: str) -> Future[JobSnapshot]:
    """The look at the job. Unlike a pool's, its thread does not keep a process that was interrupted from ending."""
    answer: Future[JobSnapshot] = Future()

    def look() -> None:
        try:
            answer.set_result(at.look(job))
        except BaseException as err:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(err)

    threading.Thread(target=look, name="kfjob-look", daemon=True).start()
    return answer


def _from_archive(at: Place, job: str, error: NotFound, notice: Notice) -> Run:
    from kfjob.api import archive
    from kfjob.api.run import from_folder

    try:
        left = archive.newest(archive.archive_root(at.settings), at.namespace, job)
    except NotFound:
        raise error from None
    notice(f"`{job}` is gone, this is the archive of its last launch: {left}")
    return replace(from_folder(left, settings=at.settings), place=at)
