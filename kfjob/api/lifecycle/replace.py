"""Replace one launch of a job by another: of several replacements at once, one wins and the others fail."""

from __future__ import annotations

from contextlib import suppress

from kfjob.api.lifecycle.start import check_acceptance, start
from kfjob.api.lifecycle.stop import stop
from kfjob.api.prepared import PreparedJob
from kfjob.api.reader import LiveReader
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.base.errors import AlreadyExists, NotFound
from kfjob.joblog.events import JobSnapshot


def find_live(target: Target, job: str) -> JobSnapshot | None:
    """Return the job as it is now; None if the backend does not have it."""
    try:
        return target.get_job(job)
    except NotFound:
        return None


def replace_launch(
    job: PreparedJob, live: JobSnapshot | None, *, timeout: float = STOP_TIMEOUT, notify: Notify = ignore_notice
) -> LiveReader:
    """Stop the launch `live`, if there is one, and start `job`, after the API server has said that it would accept the job.

    Only the launch that the caller has seen is stopped, by its uid. So a launch that another command has started in the
    meantime goes on, and the backend refuses a second launch under its name.

    Raises:
        AlreadyExists: another command has started the job in the meantime; its launch was not changed.
        KfjobError: the API server does not accept the job; nothing was stopped.
    """
    target = job.target
    if live is None:
        return start(job, notify=notify)
    if target.capabilities.has_api_server:
        check_acceptance(job)
    with suppress(NotFound):  # it is gone: if another launch has its name, `start` fails
        stop(target, live.name, timeout=timeout, uid=live.uid)
    try:
        return start(job, notify=notify)
    except AlreadyExists as err:
        winner = find_live(target, live.name)
        if winner is None or winner.uid == live.uid:
            raise
        raise AlreadyExists(
            f"another command has started job `{live.name}` in the meantime",
            cause=f"launch `{winner.launch or 'unknown'}` has the name; it was not changed, and nothing else was started",
            hint=f"`kfjob status {live.name}` shows it",
        ) from err
