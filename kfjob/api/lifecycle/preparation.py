"""Everything that can fail before a launch starts, in one order for `submit` and `relaunch`: cheap checks before pushes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from kfjob.api.capacity.nodes import find_missing_nodes, read_nodes
from kfjob.api.capacity.pod_requirements import find_references
from kfjob.api.images import own_pull_secret
from kfjob.api.images.check import check_job_images
from kfjob.api.images.code_layer import CodeLayer, change_code
from kfjob.api.prepared import JobSource, PreparedJob
from kfjob.api.target import Target
from kfjob.api.target_needs import add_target_needs
from kfjob.backends.base import Inventory
from kfjob.backends.resources import CORE
from kfjob.base.capabilities import AUTO_TARGET
from kfjob.base.common_types import Notify
from kfjob.base.errors import KfjobError, NotInstalled, Problem, SpecError
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.registry import get_job, get_kind, read_pod_templates
from kfjob.lint.storage import HIDES_PROGRAM

T = TypeVar("T")
_GUESS = (HIDES_PROGRAM, "warning")


def check_job(
    source: JobSource, target: Target, *, notify: Notify, code: CodeLayer | None = None, is_submitted: bool = True
) -> PreparedJob:
    """Prepare a job, and check its findings and what its target lacks. `notify` receives warnings.

    `code` will be added to the image. A job that `is_submitted` starts now, and its start asks this machine for the program.

    Raises:
        SpecError: every problem of the job.
    """
    job = source.prepare(target, notify=notify)
    job = add_target_needs(job, code_folder=code.folder if code else None, is_submitted=is_submitted)
    if code and code.workdir:  # lint guesses the image's working directory, and the image gets this one
        job = replace(job, findings=tuple(item for item in job.findings if (item.rule, item.severity) != _GUESS))
    job.check_findings(notify)
    return job


def use_offered_kind(
    job: PreparedJob, prepare: Callable[[Target], PreparedJob], use: Callable[[PreparedJob], T], notify: Notify
) -> T:
    """Return what `use` makes of the job; if the cluster lacks the default kind, of the job as another kind that it offers.

    Raises:
        NotInstalled: the kind of the job was chosen.
        Refused: the cluster offers no kind of job.
    """
    try:
        return use(job)
    except NotInstalled:
        if job.target.settings.job_kind:
            raise
    other = job.target.change(job_kind=AUTO_TARGET).choose_kind(None).target
    notify(f"the cluster has no {job.target.job_kind.name}: the job becomes a {other.job_kind.name}")
    return use(prepare(other))


def add_code(
    job: PreparedJob, source: JobSource, code: CodeLayer | None, *, notify: Notify, dry_run: bool = False
) -> PreparedJob:
    """Build the image of the source and push the code as a layer; return the same launch with the image that has both.

    Raises:
        KfjobError: the code could not be pushed.
    """
    return source.change_images(job, change_code(code, job, notify=notify, dry_run=dry_run) if code else None)


def prepare_launch(job: PreparedJob, source: JobSource, *, code: CodeLayer | None, notify: Notify) -> PreparedJob:
    """Check what the launch needs outside of its source, and return the job to start.

    Raises:
        KfjobError: the code could not be pushed.
        SpecError: the job cannot run in the runtime that it names.
        NotFound, Refused: an image does not exist, or not for the nodes' architecture; or this machine lacks what the job
            needs; or there is no such namespace.
    """
    if code is not None:
        job.target.check_namespace()
    job = add_code(job, source, code, notify=notify)
    check_runtime(job)
    check_job_images(job, notify=notify)
    _report_missing_objects(job, notify)
    own_pull_secret.apply_pull_secret(job)
    _check_machine(job, notify)
    return job


def check_runtime(job: PreparedJob) -> None:
    """Check the runtime of Kubeflow Trainer that the job shares with others, if the user may read it.

    Raises:
        SpecError: it does not exist, or the job cannot run in it.
    """
    if not (job.resolved and job.spec.runtime and job.target.capabilities.has_api_server):
        return
    manifest, problems = get_job(job.objects), list[Problem]()
    with suppress(KfjobError):  # the submit itself reports an API server that does not answer
        problems += get_kind(manifest).find_runtime_problems(manifest, job.target.cluster.inventory(job.namespace).get_object)
    if problems:
        raise SpecError(job.locate(problems))


def _report_missing_objects(job: PreparedJob, notify: Notify) -> None:
    """Send a warning to `notify` for pods that no node can hold, and for claims that do not exist: somebody may add them.

    Nothing is reported of what the user may not read, and of nodes in a cluster that starts them on demand.
    """
    if not job.target.capabilities.has_api_server:
        return
    pods = tuple(read_pod_templates(job.objects))
    cluster = job.target.cluster.inventory(job.namespace)
    problems: list[Problem] = []
    with suppress(KfjobError):  # the submit itself reports an API server that does not answer
        nodes = read_nodes(cluster)
        problems += find_missing_nodes(cluster, nodes, pods) if nodes else []
    with suppress(KfjobError):
        problems += _find_missing_claims(job, cluster, pods)
    for problem in job.locate([problem for problem in problems if problem.severity == "error"]):
        notify("\n".join(dataclasses.replace(problem, severity="warning").lines()))


def _find_missing_claims(job: PreparedJob, cluster: Inventory, pods: Sequence[PodTemplate]) -> list[Problem]:
    if job.resolved is None:
        return []
    created = {item["metadata"].get("name") for item in job.objects if item["kind"] == "PersistentVolumeClaim"}
    hint = "its pods wait until it exists; `manifests/storage/` has examples"
    return [
        Problem(title=f"there is no claim `{item.name}` in namespace `{job.namespace}`", path=item.path, hint=hint)
        for item in find_references(pods, job.spec)
        if item.kind == "claim"
        and item.name not in created
        and cluster.get_object(CORE, "persistentvolumeclaims", item.name) is None
    ]


def _check_machine(job: PreparedJob, notify: Notify) -> None:
    """Check on the local backend that this machine can start the job.

    `notify` receives the program that the job runs with, because PATH may have another than the user expects.
    """
    if job.target.capabilities.runs_on_this_machine:
        requirements = job.target.machine.check_requirements(job.plan)
        for requirement in requirements:
            if requirement.problem:
                raise requirement.problem
        for requirement in requirements:
            if requirement.program:
                notify(f"the job runs with `{requirement.program}`")
        _note_hidden_gpus(job, notify)


def _note_hidden_gpus(job: PreparedJob, notify: Notify) -> None:
    """Say that the job does not see the GPUs of this machine, because it requests none."""
    plan = job.plan
    roles = [plan.get_role(index).resources for index in range(plan.spec.nodes)]
    requests = any(role.gpus for role in roles) or "gpus" in plan.spec.resources.model_fields_set
    if requests or not plan.processes_per_node.isdecimal() or "CUDA_VISIBLE_DEVICES" in plan.spec.env:
        return  # `auto` and `gpu` use all GPUs
    if count := job.target.machine.count_gpus():
        gpus = "the GPU" if count == 1 else f"the {count} GPUs"
        hint = f"`resources.gpus: {count}` in the spec requests {'it' if count == 1 else 'them'}"
        notify(f"the job requests no GPU, so it does not see {gpus} of this machine; {hint}")
