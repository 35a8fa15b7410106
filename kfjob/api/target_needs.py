"""Find what a job needs of its target: the pods of a cluster, or this machine with its programs and data."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.api.cluster_needs import find_cluster_needs, find_code
from kfjob.api.local_data import find_data_problems
from kfjob.api.prepared import PreparedJob
from kfjob.base.errors import Problem

_SPEC_FIELDS = ("command", "resources")
"""Fields whose problem on this machine is one of the spec; a missing etcd is one of the machine."""


def find_target_needs(planned: PreparedJob) -> Iterator[Problem]:
    """Yield what the pods of a job on a cluster may lack, or the GPUs, program, script and data that this machine lacks."""
    if planned.target.capabilities.has_api_server:
        yield from find_cluster_needs(planned)
    elif planned.target.settings.backend != "local" and planned.spec.image:  # the spec is for a cluster, even if there is none
        yield from find_code(planned)
    elif planned.target.capabilities.runs_on_this_machine:
        for requirement in planned.target.machine.check_requirements(planned.plan):
            if requirement.path in _SPEC_FIELDS and (err := requirement.problem):
                yield Problem(title=err.title, path=requirement.path, detail=err.cause, hint=err.hint)
        if planned.spec.train:
            yield from find_data_problems(planned.spec.train, planned.plan)
