"""Stop a job and submit its recorded spec again, with a new launch id and the same checkpoint folder."""

from __future__ import annotations

from kfjob.api import archive, pull_secret
from kfjob.api.code import Code, with_code
from kfjob.api.context import plan_context
from kfjob.api.image_check import check_image
from kfjob.api.place import Notice, Place
from kfjob.api.stop import STOP_TIMEOUT, stop
from kfjob.backends.base import JobRef
from kfjob.errors import NotFound, UsageError
from kfjob.events import JobSnapshot
from kfjob.plan import JobPlan, resolve
from kfjob.spec.job import JobSpec


def relaunch(
    place: Place,
    job: str,
    *,
    timeout: float = STOP_TIMEOUT,
    code: Code | None = None,
    notice: Notice = lambda _text: None,
) -> tuple[JobPlan, JobRef]:
    """The plan and the reference of the new launch.

    The spec is the one recorded with the job; of a job that was stopped, the one in the archive. It is read and planned, its
    image looked for, and `code` put onto that before anything is stopped.

    Raises:
        NotFound: neither the backend nor the archive knows the job.
        UsageError: the job was not submitted by kfjob, so there is no spec.
        AlreadyExists: somebody took the name in the moment between.
    """
    live = _live(place, job)
    last = live or archive.Archived(archive.newest(archive.archive_root(place.settings), place.namespace, job)).snapshot()
    if last.spec is None:
        raise UsageError(
            f"job `{job}` was not submitted by kfjob, there is no recorded spec", hint="write a spec and `kfjob submit` it"
        )
    spec = JobSpec.model_validate_json(last.spec)
    plan = resolve(spec, plan_context(place.settings, place.name))
    if code:
        plan = resolve(with_code(spec, plan, code, place, notice=notice), plan_context(place.settings, place.name))
    check_image(place, plan, notice=notice)
    pull_secret.keep(place, plan)
    if live:
        stop(place, job, timeout=timeout)
    return plan, place.backend.submit(plan)


def _live(place: Place, job: str) -> JobSnapshot | None:
    try:
        return place.get(job)
    except NotFound:
        return None
