"""Compile the spec of an import, to compare the job with the original and to leave out what does not change it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import SpecError
from kfjob.kinds.pytorchjob.manifest import compile_pytorchjob
from kfjob.kinds.pytorchjob.normalize import normalize_job
from kfjob.objects import api_objects
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec

FIXED = ("version", "name", "image", "overrides")
"""Fields that `remove_defaults` never removes."""
_FIXED_PATHS = (("train",), ("overrides",))
"""Paths below which it removes nothing."""


def compile_spec(spec: Mapping[str, Any]) -> JsonObject:
    """Return the PyTorchJob of a spec, in the normal form for comparisons."""
    plan = resolve(JobSpec.model_validate(spec), Context(backend="kubernetes", launch="import"))
    return normalize_job(compile_pytorchjob(plan), keep_volume_names=True)


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
    containers = (api_objects.find_training_container(template["spec"]) for template in templates)
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
