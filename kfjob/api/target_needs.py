"""Find what a job needs of its target: the pods of a cluster, or this machine with its programs and data."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.cluster_needs import find_cluster_needs, find_code
from kfjob.api.local_data import find_data_problems
from kfjob.api.local_paths import find_volume_paths
from kfjob.api.prepared import PreparedJob
from kfjob.base.errors import Problem

_SPEC_FIELDS = ("command", "resources", "train")
"""Fields whose problem on this machine is one of the spec; a missing etcd is one of the machine."""


def add_target_needs(job: PreparedJob) -> PreparedJob:
    """Return the job of a spec with what its target lacks among its findings; another job as it is."""
    return job.add_needs(_find_needs(job)) if job.records_spec else job


def _find_needs(prepared: PreparedJob) -> Iterator[Problem]:
    """Yield what the pods of a job on a cluster may lack, or the GPUs, program, script and data that this machine lacks."""
    if prepared.target.capabilities.has_api_server:
        yield from find_cluster_needs(prepared)
    elif prepared.target.settings.backend != "local" and prepared.spec.image:  # for a cluster, even if there is none
        yield from find_code(prepared)
    elif prepared.target.capabilities.runs_on_this_machine:
        for requirement in prepared.target.machine.check_requirements(prepared.plan):
            if requirement.path.partition(".")[0] in _SPEC_FIELDS and (err := requirement.problem):
                yield Problem(title=err.title, path=requirement.path, detail=err.cause, hint=err.hint)
        if prepared.spec.train:
            yield from find_data_problems(prepared.spec.train, prepared.plan)
        yield from find_volume_paths(prepared)
