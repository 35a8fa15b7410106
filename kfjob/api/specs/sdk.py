"""Convert specs to and from the typed models of the kubeflow-training SDK (extra `sdk`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kfjob.api.planning import plan_job
from kfjob.api.settings import load_current_settings
from kfjob.api.target import make_target
from kfjob.base.common_types import JsonMapping, JsonObject, Notify, ignore_notice
from kfjob.base.errors import Problem, SpecError, UsageError
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.importer.import_job import import_objects
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.source.manifest import ManifestObject
from kfjob.source.spec_text import LoadedSpec
from kfjob.source.template.fill import find_object_problem
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions, join_path

if TYPE_CHECKING:
    from kubeflow.training.models import KubeflowOrgV1PyTorchJob

_MODEL = "KubeflowOrgV1PyTorchJob"


def to_pytorchjob(spec: JobSpec, *, namespace: str | None = None, launch: str | None = None) -> KubeflowOrgV1PyTorchJob:
    """Return the PyTorchJob that `submit` would create, as a model of the SDK.

    `namespace` defaults as for `submit`. `launch` is the launch id and defaults to a new one.

    Raises:
        SpecError: the spec has problems on Kubernetes.
        UsageError: the job has its own etcd, which is not part of a PyTorchJob; or the extra `sdk` is not installed.
    """
    target = make_target(load_current_settings(namespace=namespace), "kubernetes")
    job = plan_job(LoadedSpec(spec, Positions()), target, launch=launch)
    job.check_findings(ignore_notice)
    plan = job.plan
    if plan.own_etcd_image:
        hint = "set `rendezvous.endpoint` or use `rendezvous: c10d`; `kfjob submit` creates the etcd too"
        raise UsageError(f"job `{plan.name}` needs its own etcd, which is not part of a PyTorchJob", hint=hint)
    return to_model(compile_pytorchjob(plan))


def from_pytorchjob(job: KubeflowOrgV1PyTorchJob | JsonMapping, *, notify: Notify = ignore_notice) -> JobSpec:
    """Return the spec of a PyTorchJob: a model of the SDK, or a manifest as a mapping.

    Fields without a counterpart in the spec go to `overrides`. `notify` receives a line for everything that the spec changes
    or cannot hold.

    Raises:
        SpecError: the object is not a PyTorchJob, or no spec can express it.
        UsageError: the extra `sdk` is not installed.
    """
    manifest = deepcopy(dict(job)) if isinstance(job, Mapping) else _api_client().sanitize_for_serialization(job)
    if problem := find_object_problem(manifest):
        raise SpecError([Problem(title=problem.title, path=join_path(problem.path))])
    if manifest["kind"] != operator_api.KIND:
        raise SpecError([Problem(title=f"this is a {manifest['kind']}, not a {operator_api.KIND}")])
    conversion = import_objects([ManifestObject(value=manifest)])
    for note in conversion.notes:
        notify(str(note))
    return JobSpec.model_validate(conversion.spec)


def to_model(manifest: JsonObject) -> KubeflowOrgV1PyTorchJob:
    """Return the manifest of a PyTorchJob as a model of the SDK.

    Raises:
        UsageError: the extra `sdk` is not installed.
    """
    manifest = deepcopy(manifest)
    metrics = manifest["spec"].get("elasticPolicy", {}).pop("metrics", None)  # the SDK (1.9.4) names their type but lacks it
    model = _api_client().deserialize(SimpleNamespace(data=json.dumps(manifest)), _MODEL)
    if metrics:
        model.spec.elastic_policy.metrics = metrics
    return model


def _api_client() -> Any:
    try:
        from kubeflow.training.api_client import ApiClient
    except ImportError as err:
        title = "the package `kubeflow-training` is not installed"
        raise UsageError(
            title, cause=str(err), hint="in a checkout of kfjob, run `uv pip install --editable '.[sdk]'`"
        ) from err
    return ApiClient()
