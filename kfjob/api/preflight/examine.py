"""All that a job needs before it starts, looked at without creating anything."""

from __future__ import annotations

from dataclasses import replace

from kfjob.api.config import Settings
from kfjob.api.context import plan_context
from kfjob.api.image_check import ImageInspector
from kfjob.api.place import Notice, cluster_of, place
from kfjob.api.preflight import cluster, images, machine, wants
from kfjob.api.preflight.result import Checked, Preflight, ordered
from kfjob.api.render import resolve_at
from kfjob.compile.pytorchjob import manifests
from kfjob.lint.check import lint
from kfjob.spec.source import LoadedSpec


def examine(loaded: LoadedSpec, *, settings: Settings, notice: Notice, inspector: ImageInspector | None = None) -> Preflight:
    """Everything at once: what lint finds, and what the cluster (or this machine) says.

    Raises:
        SpecError: the spec itself is not valid.
        Unreachable: the cluster does not answer.
    """
    at = place(settings, notice=notice)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, at.name))
    linted = lint(loaded.spec, plan)
    found = Checked(problems=[replace(one, severity="error") for one in linted] if settings.strict else linted)
    if at.name == "local":
        machine.check(plan, at, found)
    else:
        objects = manifests(plan)
        inventory = cluster_of(at).inventory(plan.namespace)
        pods = wants.pod_kinds(objects)
        wanted = cluster.Wanted(spec=loaded.spec, plan=plan, objects=objects, pods=pods, cluster=inventory)
        cluster.check(wanted, found)
        images.check(wanted, at, found, inspector=inspector)
    return Preflight(
        job=plan.name,
        namespace=plan.namespace,
        backend=at.name,
        problems=ordered(loaded.positions.locate_all(found.problems)),
        good=tuple(found.good),
        unchecked=tuple(found.unchecked),
    )
