"""What a submit would do, without doing it: checked here, or gone through by the API server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kfjob.api.code import Code, with_code
from kfjob.api.config import Settings
from kfjob.api.context import plan_context
from kfjob.api.lint import linted
from kfjob.api.place import Notice, Place, cluster_of, place
from kfjob.api.render import resolve_at
from kfjob.compile.pytorchjob import Manifest, manifests
from kfjob.spec import api_objects
from kfjob.spec.source import LoadedSpec

How = Literal["client", "server"]


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """A job that was checked and not created."""

    name: str
    namespace: str
    how: How
    objects: tuple[Manifest, ...]  # none on this machine

    @property
    def said(self) -> str:
        """The outcome, after the job's name."""
        return "would be taken by the API server" if self.how == "server" else "is valid"

    def describe(self) -> dict[str, Any]:
        """The outcome for machines."""
        return {"job": self.name, "namespace": self.namespace, "dry_run": self.how, "objects": list(self.objects)}


def of_loaded(loaded: LoadedSpec, how: How, *, settings: Settings, notice: Notice, code: Code | None = None) -> DryRun:
    """Of a spec; with `code`, of the image that would be made with it, of which nothing is pushed.

    Raises:
        SpecError: every problem of the spec, and every finding of lint that is an error.
        AlreadyExists, Refused, Forbidden: the API server would not take it (server).
    """
    at = place(settings, notice=notice)
    plan = resolve_at(loaded.spec, loaded.positions, plan_context(settings, at.name))
    linted(loaded, plan, settings=settings, notice=notice)
    if code:
        spec = with_code(loaded.spec, plan, code, at, notice=notice, dry_run=True)
        plan = resolve_at(spec, loaded.positions, plan_context(settings, at.name))
    objects = tuple(manifests(plan)) if at.name == "kubernetes" else ()
    return _gone_through(at, DryRun(name=plan.name, namespace=plan.namespace, how=how, objects=objects))


def of_objects(objects: Sequence[Manifest], how: How, *, settings: Settings, notice: Notice) -> DryRun:
    """Of a rendered template."""
    (job,) = (one["metadata"] for one in objects if one["kind"] == api_objects.PYTORCHJOB)
    wanted = DryRun(name=job["name"], namespace=job["namespace"], how=how, objects=tuple(objects))
    return _gone_through(place(settings, notice=notice), wanted)


def _gone_through(at: Place, wanted: DryRun) -> DryRun:
    if wanted.how == "server":
        cluster_of(at).dry_run(wanted.objects)
    return wanted
