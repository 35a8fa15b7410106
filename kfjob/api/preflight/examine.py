"""Check everything that a job needs before it starts, without creating anything."""

from __future__ import annotations

from collections.abc import Callable

from kfjob.api.images.check import ImageInspector
from kfjob.api.planning import Planned, plan_job
from kfjob.api.preflight.cluster import PreflightJob, check_cluster
from kfjob.api.preflight.images import check_images
from kfjob.api.preflight.machine import check_machine
from kfjob.api.preflight.result import CheckResults, Preflight, sort_problems
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.base.errors import Problem
from kfjob.kinds.pod_templates import read_pod_templates
from kfjob.source.spec_text import LoadedSpec


def examine(loaded: LoadedSpec, *, settings: Settings, inspector: ImageInspector | None = None) -> Preflight:
    """Return what lint finds, and whether the cluster (or this machine) has everything that the job needs.

    Raises:
        SpecError: the spec is not valid.
        Unreachable: the cluster does not answer.
    """
    planned = plan_job(loaded, find_target(settings))
    return examine_planned(planned, locate=loaded.positions.locate_all, inspector=inspector)


def examine_planned(
    planned: Planned, *, locate: Callable[[list[Problem]], list[Problem]], inspector: ImageInspector | None = None
) -> Preflight:
    """Return what lint found, and whether the cluster (or this machine) has everything that the planned job needs.

    `locate` adds the positions to problems with paths of a spec.

    Raises:
        Unreachable: the cluster does not answer.
    """
    plan, target = planned.plan, planned.target
    results = CheckResults(problems=list(planned.findings))
    if target.kind.runs_on_this_machine:
        check_machine(planned, results)
    else:
        job = PreflightJob(
            planned=planned,
            pods=tuple(read_pod_templates(planned.manifests)),
            cluster=target.cluster.inventory(plan.namespace),
        )
        check_cluster(job, results)
        check_images(job, target, results, inspector=inspector)
    return Preflight(
        job=plan.name,
        namespace=plan.namespace,
        backend=target.name,
        problems=sort_problems(locate(results.problems)),
        good=tuple(results.good),
        unchecked=tuple(results.unchecked),
    )
