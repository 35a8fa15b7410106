"""Everything that can fail before a launch starts, in one order for `submit` and `relaunch`: cheap checks before pushes."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.cluster_needs import find_missing_parts
from kfjob.api.images import own_pull_secret
from kfjob.api.images.check import check_job_images
from kfjob.api.images.code_layer import CodeLayer, change_code
from kfjob.api.local_data import find_local_problems
from kfjob.api.prepared import JobSource, PreparedJob
from kfjob.api.target import Target
from kfjob.base.common_types import Notify
from kfjob.base.errors import Problem


def check_job(source: JobSource, target: Target, *, notify: Notify, has_code: bool = False) -> PreparedJob:
    """Prepare a job, and check its findings and its data on this machine. `notify` receives warnings.

    With `has_code`, the code of this folder is added to the image.

    Raises:
        SpecError: every problem of the job.
    """

    def find_problems(job: PreparedJob) -> Iterator[Problem]:
        yield from find_missing_parts(job, has_code=has_code)
        yield from find_local_problems(job)

    job = source.prepare(target, check=find_problems, notify=notify)
    job.check_findings(notify)
    return job


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
        NotFound, Refused: an image does not exist, or not for the nodes' architecture; or this machine lacks what the job
            needs.
    """
    job = add_code(job, source, code, notify=notify)
    check_job_images(job, notify=notify)
    own_pull_secret.apply_pull_secret(job)
    _check_machine(job, notify)
    return job


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
