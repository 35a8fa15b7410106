"""Replace one launch of a job by another: of several replacements at once, one wins and the others fail."""

from __future__ import annotations

from contextlib import suppress

from kfjob.api.lifecycle.start import list_objects, start
from kfjob.api.lifecycle.stop import stop
from kfjob.api.prepared import PreparedJob
from kfjob.api.reader import LiveReader
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.base.errors import AlreadyExists, NotFound, Refused
from kfjob.base.units import parse_quantity
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


def check_acceptance(job: PreparedJob) -> None:
    """Ask the API server whether it would create the job's objects, while a live job still has their names.

    The server looks for objects of the same name last, so `AlreadyExists` means that it accepts all else. A quota counts the
    live job too: only a request that is larger than the whole quota is refused here.

    Raises:
        KfjobError: the server refuses the job; nothing was changed.
    """
    for item in list_objects(job):
        try:
            job.target.cluster.dry_run([item])
        except AlreadyExists:
            continue
        except Refused as err:
            if not may_fit_quota(err.cause or ""):
                raise


def may_fit_quota(message: str) -> bool:
    """Return whether a message of the API server is about a quota that has room once other objects are deleted.

    Source: Kubernetes v1.34, plugin/pkg/admission/resourcequota/controller.go (`exceeded quota: …`).
    """
    _, is_quota, amounts = message.partition("exceeded quota: ")
    if not is_quota:
        return False
    requested = _read_amounts(amounts.partition("requested: ")[2].partition(", used: ")[0])
    limited = _read_amounts(amounts.partition(", limited: ")[2])
    return all(parse_quantity(amount) <= parse_quantity(limited.get(resource, "0")) for resource, amount in requested.items())


def _read_amounts(text: str) -> dict[str, str]:
    """Return the amount of each resource in `cpu=1,memory=1Gi`."""
    pairs = (pair.partition("=") for pair in text.split(","))
    return {resource.strip(): amount.strip() for resource, _, amount in pairs}
