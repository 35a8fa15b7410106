"""Replace one launch of a job by another: of several replacements at once, one wins and the others fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from kfjob.api.lifecycle.stop import stop
from kfjob.api.reader import LiveReader
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.base.errors import AlreadyExists, NotFound
from kfjob.joblog.events import JobSnapshot


def find_live(target: Target, job: str) -> JobSnapshot | None:
    """Return the job as it is now; None if the backend does not have it."""
    try:
        return target.get_job(job)
    except NotFound:
        return None


def replace_launch(
    target: Target, live: JobSnapshot | None, start: Callable[[], LiveReader], *, timeout: float = STOP_TIMEOUT
) -> LiveReader:
    """Stop the launch `live`, if there is one, and `start` the next.

    Only the launch that the caller has seen is stopped, by its uid. So a launch that another command has started in the
    meantime goes on, and the backend refuses a second launch under its name.

    Raises:
        AlreadyExists: another command has started the job in the meantime; its launch was not changed.
    """
    if live is None:
        return start()
    with suppress(NotFound):  # it is gone: if another launch has its name, `start` fails
        stop(target, live.name, timeout=timeout, uid=live.uid)
    try:
        return start()
    except AlreadyExists as err:
        winner = find_live(target, live.name)
        if winner is None or winner.uid == live.uid:
            raise
        raise AlreadyExists(
            f"another command has started job `{live.name}` in the meantime",
            cause=f"launch `{winner.launch or 'unknown'}` has the name; it was not changed, and nothing else was started",
            hint=f"`kfjob status {live.name}` shows it",
        ) from err
