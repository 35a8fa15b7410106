"""All that a job needs before it starts, looked at without creating anything."""

from __future__ import annotations

from dataclasses import replace

from kfjob.api.context import plan_context
from kfjob.api.images.check import ImageInspector
from kfjob.api.preflight import cluster, images, machine
from kfjob.api.preflight.result import Checked, Preflight, ordered
from kfjob.api.settings import Settings
from kfjob.api.specs.render import resolve_at
from kfjob.api.target import cluster_of, find_target
from kfjob.common_types import Notify
from kfjob.compile.pod_templates import read_pod_templates
from kfjob.compile.pytorchjob import compile_manifests
from kfjob.lint.check import lint
from kfjob.spec.source import LoadedSpec


def examine(loaded: LoadedSpec, *, settings: Settings, notify: Notify, inspector: ImageInspector | None = None) -> Preflight:
    """Everything at once: what lint finds, and what the cluster (or this machine) says.

    Raises:
        SpecError: the spec itself is not valid.
        Unreachable: the cluster does not answer.
    """
    target = find_target(settings, notify=notify)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, target.name))
    linted = lint(loaded.spec, plan)
    found = Checked(problems=[replace(one, severity="error") for one in linted] if settings.strict else linted)
    if target.name == "local":
        machine.check(plan, target, found)
    else:
        objects = compile_manifests(plan)
        inventory = cluster_of(target).inventory(plan.namespace)
        pods = read_pod_templates(objects)
        wanted = cluster.Wanted(spec=loaded.spec, plan=plan, objects=objects, pods=pods, cluster=inventory)
        cluster.check(wanted, found)
        images.check(wanted, target, found, inspector=inspector)
    return Preflight(
        job=plan.name,
        namespace=plan.namespace,
        backend=target.name,
        problems=ordered(loaded.positions.locate_all(found.problems)),
        good=tuple(found.good),
        unchecked=tuple(found.unchecked),
    )
