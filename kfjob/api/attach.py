"""A job that is there already, taken in hand: its backend is asked while what reads the answer is imported."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from kfjob.api.settings import Settings, settings_here
from kfjob.api.target import Target, find_job_target
from kfjob.common_types import Notify, ignore_notice
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
    notify: Notify = ignore_notice,
) -> Run:
    """Take an existing job in hand; one that was stopped, from the archive.

    Raises:
        NotFound: neither the backend nor the archive knows it.
    """
    target = find_job_target(
        job, settings or settings_here(backend=backend, context=context, namespace=namespace), notify=notify
    )
    assert target.backend  # opened by this thread, for two that import would wait for each other  # noqa: S101
    looked = time.monotonic()
    answer = _begun(target, job)
    from kfjob.api import observe_config
    from kfjob.api.lifecycle.stop import ref_of
    from kfjob.api.run import Run

    try:
        snapshot = answer.result()
    except NotFound as err:
        return _from_archive(target, job, err, notify)
    return Run(target, ref_of(target, snapshot), observe_config.of_snapshot(snapshot), _attached=[(looked, snapshot)])


def _begun(target: Target, job: str) -> Future[JobSnapshot]:
    """The look at the job. Unlike a pool's, its thread does not keep a process that was interrupted from ending."""
    answer: Future[JobSnapshot] = Future()

    def look() -> None:
        try:
            answer.set_result(target.look(job))
        except BaseException as err:  # noqa: BLE001 - it is raised where the answer is awaited
            answer.set_exception(err)

    threading.Thread(target=look, name="kfjob-look", daemon=True).start()
    return answer


def _from_archive(target: Target, job: str, error: NotFound, notify: Notify) -> Run:
    from kfjob.api.lifecycle import archive
    from kfjob.api.run import from_folder

    try:
        left = archive.newest(archive.archive_root(target.settings), target.namespace, job)
    except NotFound:
        raise error from None
    notify(f"`{job}` is gone, this is the archive of its last launch: {left}")
    return replace(from_folder(left, settings=target.settings), target=target)
