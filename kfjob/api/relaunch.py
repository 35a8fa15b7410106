"""Stop a job and submit what is recorded of it again, with a new launch id and the same checkpoint folder."""

from __future__ import annotations

from collections.abc import Callable

from kfjob.api import archive, look
from kfjob.api.context import new_launch_id, plan_context
from kfjob.api.place import Place, cluster_of
from kfjob.api.stop import STOP_TIMEOUT, stop
from kfjob.backends.base import JobRef
from kfjob.compile.recorded import again
from kfjob.errors import NotFound, UsageError
from kfjob.events import JobSnapshot
from kfjob.observe.config import ObserveConfig
from kfjob.plan import resolve
from kfjob.spec import names
from kfjob.spec.job import JobSpec

Launched = tuple[JobRef, ObserveConfig]


def relaunch(place: Place, job: str, *, timeout: float = STOP_TIMEOUT) -> Launched:
    """The reference of the new launch, and what observation needs of it.

    What was submitted is recorded with the job; of a job that was stopped, in the archive. It is read and planned before
    anything is stopped.

    Raises:
        NotFound: neither the backend nor the archive knows the job.
        UsageError: the job was not submitted by kfjob, so nothing is recorded; or its template makes a secret.
        AlreadyExists: somebody took the name in the moment between.
    """
    live = _live(place, job)
    last = live or archive.Archived(archive.newest(archive.archive_root(place.settings), place.namespace, job)).snapshot()
    submit = _submission(place, last)
    if live:
        stop(place, job, timeout=timeout)
    return submit()


def _submission(place: Place, last: JobSnapshot) -> Callable[[], Launched]:
    """What is left to do once the old launch is gone."""
    if last.spec is not None:
        plan = resolve(JobSpec.model_validate_json(last.spec), plan_context(place.settings, place.name))
        return lambda: (place.backend.submit(plan), look.config_of_plan(plan))
    if last.manifest is not None:
        objects = again(last.manifest, before=last.launch, launch=new_launch_id())
        (pytorchjob,) = (one for one in objects if one["kind"] == names.KIND)
        return lambda: (cluster_of(place).create(objects)[0], look.config_of_job(pytorchjob))
    raise UsageError(f"nothing is recorded of job `{last.name}`: kfjob did not submit it", hint="write a spec and submit it")


def _live(place: Place, job: str) -> JobSnapshot | None:
    try:
        return place.get(job)
    except NotFound:
        return None
