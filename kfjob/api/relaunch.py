"""Stop a job and submit what is recorded of it again, with a new launch id and the same checkpoint folder."""

from __future__ import annotations

from collections.abc import Callable

from kfjob.api import archive, expectations, pull_secret
from kfjob.api.code import Code, coded, with_code
from kfjob.api.context import new_launch_id, plan_context
from kfjob.api.image_check import check_image, check_images
from kfjob.api.place import Notice, Place, cluster_of
from kfjob.api.stop import STOP_TIMEOUT, stop
from kfjob.backends.base import JobRef
from kfjob.compile.recorded import again
from kfjob.errors import NotFound, UsageError
from kfjob.events import JobSnapshot
from kfjob.observe.config import ObserveConfig
from kfjob.plan import resolve
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec

Launched = tuple[JobRef, ObserveConfig]


def relaunch(
    place: Place,
    job: str,
    *,
    timeout: float = STOP_TIMEOUT,
    code: Code | None = None,
    notice: Notice = lambda _text: None,
) -> Launched:
    """The reference of the new launch, and what observation needs of it.

    What was submitted is recorded with the job; of a job that was stopped, in the archive. It is read and planned, its image
    looked for, and `code` put onto that before anything is stopped.

    Raises:
        NotFound: neither the backend nor the archive knows the job.
        UsageError: the job was not submitted by kfjob, so nothing is recorded; or its template makes a secret.
        AlreadyExists: somebody took the name in the moment between.
    """
    live = _live(place, job)
    last = live or archive.Archived(archive.newest(archive.archive_root(place.settings), place.namespace, job)).snapshot()
    if last.spec is not None:
        submit = _of_spec(place, last.spec, code, notice)
    elif last.manifest is not None:
        submit = _of_manifest(place, last, last.manifest, code, notice)
    else:
        hint = "write a spec and submit it"
        raise UsageError(f"nothing is recorded of job `{last.name}`: kfjob did not submit it", hint=hint)
    if live:
        stop(place, job, timeout=timeout)
    return submit()


def _of_spec(place: Place, said: str, code: Code | None, notice: Notice) -> Callable[[], Launched]:
    """What is left to do once the old launch is gone."""
    spec = JobSpec.model_validate_json(said)
    plan = resolve(spec, plan_context(place.settings, place.name))
    if code:
        plan = resolve(with_code(spec, plan, code, place, notice=notice), plan_context(place.settings, place.name))
    check_image(place, plan, notice=notice)
    pull_secret.keep(place, plan)
    return lambda: (place.backend.submit(plan), expectations.of_plan(plan))


def _of_manifest(place: Place, last: JobSnapshot, manifest: str, code: Code | None, notice: Notice) -> Callable[[], Launched]:
    change = (lambda image: coded(image, code, place, notice=notice)) if code else None
    objects = again(manifest, before=last.launch, launch=new_launch_id(), image=change)
    check_images(place, objects, notice=notice)
    (pytorchjob,) = (one for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    return lambda: (cluster_of(place).create(objects)[0], expectations.of_job(pytorchjob))


def _live(place: Place, job: str) -> JobSnapshot | None:
    try:
        return place.get(job)
    except NotFound:
        return None
