"""What runs on a cluster and no spec can express: the job as a spec can have it, so that the rest of it is linted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kfjob.base.common_types import JsonObject
from kfjob.objects.api_objects import without_nulls
from kfjob.spec.fields import ENV_NAME_PATTERN
from kfjob.validation.field_paths import Path

_MAX_REPLICAS = 4096
"""Replicas for which a template is linted; a spec has at most as many nodes."""


class Limit(NamedTuple):
    """A value that a spec cannot have, and what the lint rules see in its place."""

    path: Path
    title: str


def fit_to_spec(job: JsonObject) -> tuple[JsonObject, list[Limit]]:
    """Return a copy of a job with values that a spec can have, and what was changed."""
    fitted: JsonObject = without_nulls(job)
    return fitted, list(_fit_job(fitted["spec"]))


def _fit_job(spec: JsonObject) -> Iterator[Limit]:
    if spec.get("nprocPerNode") == "xpu":
        spec["nprocPerNode"] = "auto"
        yield Limit(("spec", "nprocPerNode"), "`nprocPerNode: xpu` is linted as `auto`")
    policy = spec.get("runPolicy") or {}
    if policy.get("cleanPodPolicy") == "":
        del policy["cleanPodPolicy"]
    for kind, replica in spec["pytorchReplicaSpecs"].items():
        path: Path = ("spec", "pytorchReplicaSpecs", kind)
        if (replica.get("replicas") or 0) > _MAX_REPLICAS:
            yield Limit((*path, "replicas"), f"{replica['replicas']} replicas are linted as {_MAX_REPLICAS}")
            replica["replicas"] = _MAX_REPLICAS
        yield from _fit_pod(replica["template"]["spec"], (*path, "template", "spec"))


def _fit_pod(pod: JsonObject, path: Path) -> Iterator[Limit]:
    if (pod.get("terminationGracePeriodSeconds") or 0) < 0:
        pod["terminationGracePeriodSeconds"] = 1
        title = "a negative `terminationGracePeriodSeconds` is linted as 1, which the API server takes for it"
        yield Limit((*path, "terminationGracePeriodSeconds"), title)
    tolerations = pod.get("tolerations") or []
    kept = []
    for index, toleration in enumerate(tolerations):
        if toleration.get("operator") in ("Lt", "Gt"):
            title = f"the toleration with `operator: {toleration['operator']}` is left out of the lint"
            yield Limit((*path, "tolerations", index), title)
        else:
            kept.append(toleration)
    tolerations[:] = kept
    for field in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(field) or ()):
            yield from _fit_container(container, (*path, field, index))


def _fit_container(container: JsonObject, path: Path) -> Iterator[Limit]:
    for mount in container.get("volumeMounts") or ():
        mount["mountPath"] = f"/{mount['mountPath'].lstrip('/')}"  # as the kubelet does
    variables, kept = container.get("env") or [], []
    for index, variable in enumerate(variables):
        if ENV_NAME_PATTERN.fullmatch(variable["name"]):
            kept.append(variable)
        else:
            title = f"the variable `{variable['name']}` is left out of the lint"
            yield Limit((*path, "env", index, "name"), title)
    variables[:] = kept
