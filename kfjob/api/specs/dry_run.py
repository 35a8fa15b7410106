"""What a submit would do, without doing it: checked here, or gone through by the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kfjob.api.context import plan_context
from kfjob.api.images.code_layer import CodeLayer, add_code_layer
from kfjob.api.planning import linted
from kfjob.api.settings import Settings
from kfjob.api.specs.render import resolve_at
from kfjob.api.target import Target, cluster_of, find_target
from kfjob.common_types import JsonObject, Notify
from kfjob.compile.pytorchjob import compile_manifests
from kfjob.spec import api_objects
from kfjob.spec.source import LoadedSpec

How = Literal["client", "server"]


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """A job that was checked and not created."""

    name: str
    namespace: str
    how: How
    objects: tuple[JsonObject, ...]  # none on this machine

    @property
    def said(self) -> str:
        """The outcome, after the job's name."""
        return "would be taken by the API server" if self.how == "server" else "is valid"

    def describe(self) -> dict[str, Any]:
        """The outcome for machines."""
        return {"job": self.name, "namespace": self.namespace, "dry_run": self.how, "objects": list(self.objects)}


def of_loaded(loaded: LoadedSpec, how: How, *, settings: Settings, notify: Notify, code: CodeLayer | None = None) -> DryRun:
    """Of a spec; with `code`, of the image that would be made with it, of which nothing is pushed.

    Raises:
        SpecError: every problem of the spec, and every finding of lint that is an error.
        AlreadyExists, Refused, Forbidden: the API server would not take it (server).
    """
    target = find_target(settings, notify=notify)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, target.name))
    linted(loaded, plan, settings=settings, notify=notify)
    if code:
        spec = add_code_layer(loaded.spec, plan, code, target, notify=notify, dry_run=True)
        plan = resolve_at(spec, loaded.positions, plan_context(settings, target.name))
    objects = tuple(compile_manifests(plan)) if target.name == "kubernetes" else ()
    return _gone_through(target, DryRun(name=plan.name, namespace=plan.namespace, how=how, objects=objects))


def of_objects(objects: Sequence[JsonObject], how: How, *, settings: Settings, notify: Notify) -> DryRun:
    """Of a rendered template."""
    (job,) = (one["metadata"] for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    wanted = DryRun(name=job["name"], namespace=job["namespace"], how=how, objects=tuple(objects))
    return _gone_through(find_target(settings, notify=notify), wanted)


def _gone_through(target: Target, wanted: DryRun) -> DryRun:
    if wanted.how == "server":
        cluster_of(target).dry_run(wanted.objects)
    return wanted
