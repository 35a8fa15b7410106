"""All that a job needs before it starts, looked at without creating anything."""

from __future__ import annotations

from kfjob.api.images.check import ImageInspector
from kfjob.api.planning import plan_job
from kfjob.api.preflight import cluster, images, machine
from kfjob.api.preflight.result import Checked, Preflight, ordered
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.common_types import Notify
from kfjob.compile.pod_templates import read_pod_templates
from kfjob.spec.source import LoadedSpec


def examine(loaded: LoadedSpec, *, settings: Settings, notify: Notify, inspector: ImageInspector | None = None) -> Preflight:
    """Return what lint finds, and whether the cluster (or this machine) has everything that the job needs.

    Raises:
        SpecError: the spec is not valid.
        Unreachable: the cluster does not answer.
    """
    planned = plan_job(loaded, find_target(settings, notify=notify))
    plan, target = planned.plan, planned.target
    result = Checked(problems=list(planned.findings))
    if target.name == "local":
        machine.check(plan, target, result)
    else:
        objects = list(planned.manifests)
        inventory = target.cluster.inventory(plan.namespace)
        pods = read_pod_templates(objects)
        wanted = cluster.Wanted(spec=loaded.spec, plan=plan, objects=objects, pods=pods, cluster=inventory)
        cluster.check(wanted, result)
        images.check(wanted, target, result, inspector=inspector)
    return Preflight(
        job=plan.name,
        namespace=plan.namespace,
        backend=target.name,
        problems=ordered(loaded.positions.locate_all(result.problems)),
        good=tuple(result.good),
        unchecked=tuple(result.unchecked),
    )
