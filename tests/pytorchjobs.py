"""The kind PyTorchJob, and functions of the package with it as their kind of job."""

from __future__ import annotations

from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.cluster import pods
from kfjob.joblog.events import JobSnapshot, PodChanged
from kfjob.kinds.registry import find_kind
from kfjob.lint import check
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec

KIND = find_kind("PyTorchJob")


def lint(spec: JobSpec, plan: JobPlan, *, user_manifest: JsonMapping | None = None, **options: Any) -> list[Problem]:
    """Lint what the plan compiles to, or the manifest that a user wrote."""
    kind = {"apiVersion": KIND.api_version, "kind": KIND.name}
    manifest = kind | dict(user_manifest) if user_manifest else KIND.compile(plan)[0]
    return check.lint(spec, plan, manifest, is_user_manifest=user_manifest is not None, **options)


def snapshot(job: JsonObject, job_pods: list[JsonObject] | None = None, *, now: int) -> JobSnapshot:
    return pods.snapshot(KIND, job, job_pods, now=now)


def pod_changed(pod: JsonObject, *, now: int) -> PodChanged:
    return pods.pod_changed(KIND, pod, now=now)
