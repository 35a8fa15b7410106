"""Compare the job of an imported spec with the original, both in one form, and leave out of the spec what changes nothing.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob import operator_api
from kfjob.kinds.pytorchjob.importer.pod_to_spec import find_pull_policy, is_shared_memory
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob, find_plan_problems
from kfjob.kinds.pytorchjob.operator_api import find_training_container
from kfjob.objects import api_objects
from kfjob.objects.api_objects import without_nulls
from kfjob.objects.differences import Difference, differences, split_list
from kfjob.objects.names import SHARED_MEMORY_VOLUME
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec

FIXED = ("version", "name", "image", "overrides")
"""Fields that `remove_defaults` never removes."""
_FIXED_PATHS = (("train",), ("overrides",))
"""Paths below which it removes nothing."""


def compile_spec(spec: Mapping[str, Any]) -> JsonObject:
    """Return the PyTorchJob of a spec, in the normal form for comparisons.

    Raises:
        SpecError: the spec is not valid.
    """
    plan = resolve(JobSpec.model_validate(spec), Context(backend="kubernetes", launch="import"))
    if problems := find_plan_problems(plan):
        raise SpecError(problems)
    return normalize_job(compile_pytorchjob(plan), keep_volume_names=True)


def compare_with_original(original: JsonObject, spec: JsonMapping) -> list[Difference]:
    """Return the changes that turn the compiled spec into the original."""
    every = differences(compile_spec(spec), original, ignore_empty=True)
    return [part for difference in every for part in split_list(difference)]


def normalize_job(job: JsonObject, *, keep_volume_names: bool = False) -> JsonObject:
    """Return a PyTorchJob without the fields that the cluster and a launch add, and with one form for equal values.

    The volume that a spec has as its `shared_memory` gets kfjob's name for it, but not with `keep_volume_names`: in a compiled
    spec, a volume with another name is one of `volumes`.
    """
    job = deepcopy({key: job[key] for key in ("metadata", "spec")})
    job["metadata"] = _normalize_metadata(job["metadata"], ("name", "namespace"))
    if (run_policy := job["spec"].get("runPolicy") or {}).get("suspend") is False:
        del run_policy["suspend"]  # the default, which the API server adds (operator v1.9.3, kubeflow.org_pytorchjobs.yaml)
    policy = job["spec"].get("elasticPolicy") or {}
    policy.pop("rdzvId", None)
    if policy.get("maxRestarts") == 0:  # torchrun's default
        del policy["maxRestarts"]
    if processes := policy.pop("nProcPerNode", None):  # the older place of the number; the webhook forbids both
        job["spec"].setdefault("nprocPerNode", str(processes))
    if "rdzvConf" in policy:
        policy["rdzvConf"] = sorted(policy["rdzvConf"], key=lambda pair: str(pair.get("key")))
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        template = (replica or {}).get("template") or {}
        template["metadata"] = _normalize_metadata(template.get("metadata") or {}, ())
        pod = template.get("spec") or {}
        _normalize_pod(pod)
        if not keep_volume_names:
            _rename_shared_memory(pod, find_training_container(pod))
    normalized: JsonObject = without_nulls(job)
    return normalized


def _normalize_metadata(metadata: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    normalized = {key: metadata[key] for key in keys if key in metadata}
    for part in ("labels", "annotations"):
        values = metadata.get(part) or {}
        normalized[part] = {key: value for key, value in values.items() if key not in _ADDED_KEYS}
    return normalized


_ADDED_KEYS = api_objects.KEYS_OF_KFJOB | {api_objects.ANNOTATION_LAST_APPLIED}


def _normalize_pod(spec: JsonObject) -> None:
    container: Any = find_training_container(spec)
    spec.pop("restartPolicy", None)  # the operator replaces it by the replica's (v1.9.3, pkg/core/pod.go `SetRestartPolicy`)
    if (account := spec.pop("serviceAccount", None)) and "serviceAccountName" not in spec:  # the older name
        spec["serviceAccountName"] = account
    if spec.get("serviceAccountName") == "default":  # the admission's default
        del spec["serviceAccountName"]
    if "imagePullSecrets" in spec:  # the API server takes items without a name, and the kubelet skips them
        spec["imagePullSecrets"] = [secret for secret in spec["imagePullSecrets"] or () if secret.get("name")]
    if container:
        container.setdefault("imagePullPolicy", find_pull_policy(str(container.get("image", ""))))
    for toleration in spec.get("tolerations") or ():
        toleration.setdefault("operator", "Equal")
    resources = container.get("resources") or {}
    for part, amounts in resources.items():
        if part in ("limits", "requests"):
            resources[part] = {key: str(amount) for key, amount in (amounts or {}).items()}
    _normalize_env(container)


def _normalize_env(container: JsonObject) -> None:
    for variable in container.get("env") or ():
        if "valueFrom" not in variable:
            variable["value"] = str(variable.get("value", ""))
        elif (field := variable["valueFrom"].get("fieldRef")) and field.get("apiVersion") == "v1":  # the default
            del field["apiVersion"]
        elif "divisor" in (resource := variable["valueFrom"].get("resourceFieldRef") or {}):
            divisor = str(resource.pop("divisor"))
            resource |= {"divisor": divisor} if divisor != "0" else {}  # the default, which the API server adds


def _rename_shared_memory(spec: JsonObject, container: JsonMapping) -> None:
    volumes = {volume["name"]: volume for volume in spec.get("volumes") or ()}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"], {})
        if is_shared_memory(spec, volume, mount):
            volume["name"] = mount["name"] = SHARED_MEMORY_VOLUME


def remove_defaults(spec: JsonObject) -> JsonObject:
    """Return the spec without fields that do not change the compiled job."""
    compiled = compile_spec(spec)
    try:
        own_names = _list_names(compile_spec({key: value for key, value in spec.items() if key not in _MAPPINGS}))
    except SpecError:  # something needs a variable
        own_names = set()
    for path in _list_paths(spec):
        if path[-2:-1] and path[-2] in _MAPPINGS and path[-1] not in own_names:  # hundreds of variables are common
            continue
        shorter = remove_path(spec, path)
        try:
            if compile_spec(shorter) == compiled:
                spec = shorter
        except SpecError:  # the field is required
            continue
    return spec


_MAPPINGS = ("env", "labels", "annotations", "job_labels", "job_annotations")
"""Fields whose entries a user names; kfjob adds some entries on its own."""


def _list_names(job: JsonMapping) -> set[str]:
    """Return the names of the variables of all training containers, and of the labels and annotations."""
    templates = [replica["template"] for replica in job["spec"]["pytorchReplicaSpecs"].values()]
    metadata = [job["metadata"], *(template.get("metadata") or {} for template in templates)]
    containers = (operator_api.find_training_container(template["spec"]) for template in templates)
    variables = (item["name"] for container in containers for item in container.get("env") or ())
    return {*variables, *(key for part in metadata for field in ("labels", "annotations") for key in part.get(field) or ())}


def _list_paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all keys that may be omitted, a mapping before its parts."""
    if isinstance(value, dict):
        for key, item in value.items():
            if (path or key not in FIXED) and path[:1] not in _FIXED_PATHS:
                yield (*path, key)
                yield from _list_paths(item, (*path, key))


def remove_path(spec: JsonObject, path: tuple[str, ...]) -> JsonObject:
    """Return the spec without the field at a path."""
    key, *rest = path
    if key not in spec:
        return spec
    if not rest:
        return {name: value for name, value in spec.items() if name != key}
    return {**spec, key: remove_path(spec[key], tuple(rest))}
