"""Stop a job and submit what is recorded of it again, with a new launch id and the same checkpoint folder."""

from __future__ import annotations

from collections.abc import Callable

from kfjob.api import observe_config
from kfjob.api.context import new_launch_id, plan_context
from kfjob.api.images import own_pull_secret
from kfjob.api.images.check import check_image, check_images
from kfjob.api.images.code_layer import CodeLayer, add_code_layer, push_code_layer
from kfjob.api.lifecycle import archive
from kfjob.api.lifecycle.stop import STOP_TIMEOUT, stop
from kfjob.api.target import Target, cluster_of
from kfjob.backends.base import JobRef
from kfjob.common_types import Notify
from kfjob.compile.launch_record import restore_objects
from kfjob.errors import NotFound, UsageError
from kfjob.events import JobSnapshot
from kfjob.observe.config import ObserveConfig
from kfjob.plan import resolve
from kfjob.spec import api_objects
from kfjob.spec.job import JobSpec

Launched = tuple[JobRef, ObserveConfig]


def relaunch(
    target: Target,
    job: str,
    *,
    timeout: float = STOP_TIMEOUT,
    code: CodeLayer | None = None,
    notify: Notify = lambda _text: None,
) -> Launched:
    """The reference of the new launch, and what observation needs of it.

    What was submitted is recorded with the job; of a job that was stopped, in the archive. It is read and planned, its image
    looked for, and `code` put onto that before anything is stopped.

    Raises:
        NotFound: neither the backend nor the archive knows the job.
        UsageError: the job was not submitted by kfjob, so nothing is recorded; or its template makes a secret.
        AlreadyExists: somebody took the name in the moment between.
    """
    live = _live(target, job)
    last = live or archive.Archived(archive.newest(archive.archive_root(target.settings), target.namespace, job)).snapshot()
    if last.spec is not None:
        submit = _of_spec(target, last.spec, code, notify)
    elif last.manifest is not None:
        submit = _of_manifest(target, last, last.manifest, code, notify)
    else:
        hint = "write a spec and submit it"
        raise UsageError(f"nothing is recorded of job `{last.name}`: kfjob did not submit it", hint=hint)
    if live:
        stop(target, job, timeout=timeout)
    return submit()


def _of_spec(target: Target, said: str, code: CodeLayer | None, notify: Notify) -> Callable[[], Launched]:
    """What is left to do once the old launch is gone."""
    spec = JobSpec.model_validate_json(said)
    plan = resolve(spec, plan_context(target.settings, target.name))
    if code:
        plan = resolve(add_code_layer(spec, plan, code, target, notify=notify), plan_context(target.settings, target.name))
    check_image(target, plan, notify=notify)
    own_pull_secret.apply_pull_secret(target, plan)
    return lambda: (target.backend.submit(plan), observe_config.of_plan(plan))


def _of_manifest(
    target: Target, last: JobSnapshot, manifest: str, code: CodeLayer | None, notify: Notify
) -> Callable[[], Launched]:
    change = (lambda image: push_code_layer(image, code, target, notify=notify)) if code else None
    objects = restore_objects(manifest, previous_launch=last.launch, launch=new_launch_id(), image=change)
    check_images(target, objects, notify=notify)
    (pytorchjob,) = (one for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    return lambda: (cluster_of(target).create(objects)[0], observe_config.of_job(pytorchjob))


def _live(target: Target, job: str) -> JobSnapshot | None:
    try:
        return target.get(job)
    except NotFound:
        return None
