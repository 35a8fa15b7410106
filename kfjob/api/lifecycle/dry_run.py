"""Dry runs of a submit: kfjob, or also the API server, checks the job and creates nothing."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from kfjob.api.images.code_layer import CodeLayer
from kfjob.api.lifecycle.preparation import add_code, check_job, check_runtime, use_offered_kind
from kfjob.api.lifecycle.start import describe_others
from kfjob.api.prepared import JobSource, PreparedJob
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import AlreadyExists
from kfjob.kinds.registry import is_job
from kfjob.objects.api_objects import describe_object
from kfjob.objects.reading import get_launch

Mode = Literal["client", "server"]


class DryRun(Struct, frozen=True, kw_only=True):
    """A job that was checked and not created."""

    name: str
    namespace: str
    mode: Mode
    objects: tuple[JsonObject, ...]  # empty for the local backend

    @property
    def result(self) -> str:
        """The result, as a phrase after the job's name."""
        return "would be accepted by the API server" if self.mode == "server" else "is valid"

    def describe(self) -> dict[str, Any]:
        """Return the result for JSON output."""
        return {"name": self.name, "namespace": self.namespace, "dry_run": self.mode, "objects": list(self.objects)}


def dry_run(source: JobSource, mode: Mode, *, settings: Settings, notify: Notify, code: CodeLayer | None = None) -> DryRun:
    """Check the job of a source; with `code`, the job gets the image that a submit would push. Nothing is pushed.

    Raises:
        SpecError: every problem of the job, and every lint error.
        AlreadyExists, Refused, Forbidden: the API server would not accept the job (mode `server`).
    """
    job = check_job(source, source.find_target(settings, notify=ignore_notice), notify=notify, code=code, is_submitted=False)
    job = add_code(job, source, code, notify=notify, dry_run=True)
    existing: list[JsonObject] = []
    if mode == "server":
        check_runtime(job)

        def prepare(target: Target) -> PreparedJob:
            return add_code(source.prepare(target, notify=ignore_notice), source, code, notify=notify, dry_run=True)

        job, existing = use_offered_kind(job, prepare, lambda job: (job, _ask_server(job, notify)), notify)
    for notice in describe_others([item for item in job.objects if item not in existing], "would be created with the job"):
        notify(notice)
    return DryRun(name=job.name, namespace=job.namespace, mode=mode, objects=job.objects)


def _ask_server(job: PreparedJob, notify: Notify) -> list[JsonObject]:
    """Send each object as a dry run; return the user's objects beside the job that exist and would not be changed."""
    cluster, existing = job.target.cluster, []
    for item in job.objects:
        try:
            cluster.dry_run([item])
        except AlreadyExists:
            if is_job(item) or get_launch(item):
                raise
            notify(f"{describe_object(item)} exists already; it would not be changed")
            existing.append(item)
    return existing
