"""Find what a job needs of its target: the pods of a cluster, or this machine with its programs and data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kfjob.api.cluster_needs import find_cluster, find_cluster_needs, find_code
from kfjob.api.code_paths import find_lost_outputs, find_volume_paths
from kfjob.api.local_data import find_data_problems
from kfjob.api.prepared import PreparedJob
from kfjob.base.errors import Problem

_SPEC_FIELDS = ("command", "resources", "train")
"""Fields whose problem on this machine is one of the spec; a missing etcd is one of the machine."""


def add_target_needs(job: PreparedJob, *, code_folder: Path | None = None, is_submitted: bool = False) -> PreparedJob:
    """Return the job of a spec with what its target lacks among its findings; another job as it is.

    The code of `code_folder` comes to the pods. A job that `is_submitted` starts now: then its start asks this machine for the
    program, and a job with an image that runs here is not checked for a cluster.
    """
    return job.add_needs(_find_needs(job, code_folder=code_folder, is_submitted=is_submitted)) if job.records_spec else job


def _find_needs(prepared: PreparedJob, *, code_folder: Path | None, is_submitted: bool) -> Iterator[Problem]:
    """Yield what the pods of a job on a cluster may lack, or the GPUs, program, script and data that this machine lacks."""
    target = prepared.target
    if target.capabilities.has_api_server:
        yield from find_cluster_needs(prepared, code_folder)
        yield from find_lost_outputs(prepared, code_folder)
        if not prepared.spec.image:  # it has run only here
            yield from find_cluster(prepared)
    elif not is_submitted and target.settings.backend != "local" and prepared.spec.image:  # it is for a cluster
        yield from find_code(prepared)
    elif target.capabilities.runs_on_this_machine:
        if not is_submitted:
            yield from _find_missing_programs(prepared)
        if prepared.spec.train:
            yield from find_data_problems(prepared.spec.train, prepared.plan)
        yield from find_volume_paths(prepared)


def _find_missing_programs(prepared: PreparedJob) -> Iterator[Problem]:
    for requirement in prepared.target.machine.check_requirements(prepared.plan):
        if requirement.path.partition(".")[0] in _SPEC_FIELDS and (err := requirement.problem):
            yield Problem(title=err.title, path=requirement.path, detail=err.cause, hint=err.hint)
