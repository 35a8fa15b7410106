"""Import PyTorchJobs as specs. What no field of the spec holds goes to `overrides`, and notes report what differs.

The converter reads the fields. Then the resulting spec is compiled and compared with the original, which finds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kfjob.api.specs.import_notes import split_additions
from kfjob.common_types import JsonMapping, JsonObject
from kfjob.compile import template
from kfjob.compile.manifest_diff import MISSING, Difference, differences, set_value, split_list
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.convert.conversion import Conversion, Note
from kfjob.convert.found_jobs import ANY_JOB, Choice, choose_job
from kfjob.convert.normalize import normalize_job, without_nulls
from kfjob.convert.pytorchjob import from_pytorchjob
from kfjob.errors import Problem, SpecError
from kfjob.events import TRAINING_CONTAINER
from kfjob.parsing import parse_json
from kfjob.plan import Context, resolve
from kfjob.spec import api_objects, names, pytorchjob_schema
from kfjob.spec.api_objects import find_training_container
from kfjob.spec.foreign_formats import find_template_problem
from kfjob.spec.job import JobSpec

_FIXED = ("version", "name", "image", "overrides")
"""Fields that `_remove_defaults` never removes."""
_FIXED_PATHS = (("train",), ("overrides",))
"""Paths below which it removes nothing."""


_LOST_METADATA = {
    "ownerReferences": "the owner is another object, and a new job has none",
    "finalizers": "they keep a job from being removed until a controller allows it",
}
"""Fields that a job can have and a spec cannot, by the reason."""


def import_pytorchjob(text: str, *, file: str | None = None, choice: Choice = ANY_JOB) -> Conversion:
    """Return the spec of the PyTorchJob in a manifest, which may contain other objects, also around the job.

    Raises:
        SpecError: the text is not a manifest, does not contain exactly one PyTorchJob that fits the choice, or no spec can
            express it.
    """
    try:
        return import_objects(template.parse(text, file=file), file=file, choice=choice)
    except SpecError as error:
        if problem := find_template_problem(text, file):
            raise SpecError([problem]) from error
        raise


def import_objects(manifest: Sequence[JsonObject], *, file: str | None = None, choice: Choice = ANY_JOB) -> Conversion:
    """Return the spec of the PyTorchJob among the objects, or inside one of them.

    Raises:
        SpecError: there is not exactly one PyTorchJob that fits the choice, or no spec can express it.
    """
    objects = list(_flatten_lists(manifest))
    found = choose_job(objects, choice, file)
    job, notes = _check_job(found.job, file)
    notes = [*found.notes, *notes]
    others = [item for index, item in enumerate(objects) if index != found.top]
    etcd = [item for item in others if _is_own_etcd(item, job)]
    replaced = [] if etcd else _find_replaceable_etcd(others, job)
    if replaced:
        notes.append(
            Note(
                item=", ".join(map(_name_object, replaced)),
                reason="left out: `rendezvous: etcd` makes an etcd for the job, and removes it with the job",
            )
        )
        others = [item for item in others if item not in replaced]
        for key in ("rdzvHost", "rdzvPort"):
            job["spec"]["elasticPolicy"].pop(key, None)
    is_from_kfjob = (job["metadata"].get("labels") or {}).get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    recorded = _read_recorded_spec(job)
    conversion = recorded or from_pytorchjob(job, own_etcd=bool(etcd or replaced), exact=is_from_kfjob)
    reason = "not a part of the spec: it must exist before the job starts"
    notes += [Note(item=_name_object(item), reason=reason) for item in others if item not in etcd]
    original = normalize_job(job)
    conversion = _add_overrides(conversion, original, exact=is_from_kfjob)
    if not recorded:
        conversion = replace(conversion, spec=_remove_defaults(conversion.spec))
    return _add_notes(conversion, original, notes)


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion


def _flatten_lists(objects: Sequence[JsonObject]) -> Iterator[JsonObject]:
    for item in objects:
        if isinstance(item.get("items"), list):
            yield from _flatten_lists(item["items"])
        else:
            yield item


def _check_job(job: JsonObject, file: str | None) -> tuple[JsonObject, list[Note]]:
    """Return the job as the API server stores it, and a note for each unknown field, which the API server drops."""
    job = without_nulls(job)
    problems, notes = [], []
    for path, message in list(pytorchjob_schema.find_problems(job.get("spec", {}))):
        field = ".".join(["spec", *map(str, path)])
        if message.startswith(pytorchjob_schema.UNKNOWN_FIELD):
            notes.append(Note(item=field, reason=f"{message}; left out"))
            _delete(job["spec"], path)
        else:
            problems.append(Problem(title=f"`{field}` {message}", file=file))
    for field, reason in _LOST_METADATA.items():
        if job["metadata"].get(field):
            notes.append(Note(item=f"metadata.{field}", reason=f"left out: {reason}"))
    for field in ("labels", "annotations"):
        value = job["metadata"].get(field, {})
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            problems.append(Problem(title=f"`metadata.{field}` must map names to text", file=file))
    if not problems:
        problems = [Problem(title=title, file=file) for title in _replica_problems(job["spec"]["pytorchReplicaSpecs"])]
        problems += [
            Problem(title=title, file=file, hint=_IMAGE_HINT) for title in _image_problems(job["spec"]["pytorchReplicaSpecs"])
        ]
    if problems:
        raise SpecError(problems)
    return job, notes


_IMAGE_HINT = "write the image into the manifest, for example one that `kfjob push-image` has built"


def _image_problems(replicas: JsonMapping) -> Iterator[str]:
    for kind, replica in replicas.items():
        container = find_training_container(replica.get("template", {}).get("spec", {}))
        if container and not container.get("image"):
            yield f"the container `{TRAINING_CONTAINER}` of `spec.pytorchReplicaSpecs.{kind}` has no image"


def _replica_problems(replicas: JsonMapping) -> Iterator[str]:
    """Yield the problems that the operator's webhook reports (v1.9.3, pytorchjob_webhook.go)."""
    if not replicas or set(replicas) - {"Master", "Worker"}:
        yield "`spec.pytorchReplicaSpecs` must have a Worker, a Master, or both"
    for kind, replica in replicas.items():
        if not find_training_container(replica.get("template", {}).get("spec", {})):
            yield f"`spec.pytorchReplicaSpecs.{kind}` has no container with the name `{TRAINING_CONTAINER}`"


def _delete(value: Any, path: Sequence[str | int]) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def _name_object(item: JsonObject) -> str:
    metadata = item["metadata"]
    return f"{item['kind']} {metadata.get('name') or metadata.get('generateName')}"


def _find_replaceable_etcd(objects: Sequence[JsonObject], job: JsonObject) -> list[JsonObject]:
    """Return the Service at which the job's agents meet and the etcd behind it, if both are among the objects."""
    policy = job["spec"].get("elasticPolicy") or {}
    host = str(policy.get("rdzvHost", "")).partition(".")[0]
    if policy.get("rdzvBackend") not in ("etcd", "etcd-v2") or not host:
        return []
    service = next((item for item in objects if item["kind"] == "Service" and item["metadata"].get("name") == host), None)
    selector = ((service or {}).get("spec") or {}).get("selector") or {}
    servers = [item for item in objects if selector and _runs_etcd(item, selector)]
    return [service, *servers] if service and servers else []


def _runs_etcd(item: JsonObject, selector: JsonMapping) -> bool:
    """Return whether the pods of an object have the labels of the selector, and run an etcd."""
    spec = item.get("spec") or {}
    pod = item if item["kind"] == "Pod" else spec.get("template") or {}
    labels = (pod.get("metadata") or {}).get("labels") or {}
    containers = (pod.get("spec") or {}).get("containers") or ()
    return selector.items() <= labels.items() and any("etcd" in str(container.get("image")) for container in containers)


def _is_own_etcd(item: JsonObject, job: JsonObject) -> bool:
    labels = item["metadata"].get("labels") or {}
    is_from_kfjob = labels.get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    return is_from_kfjob and item["metadata"].get("name") == names.etcd_name(job["metadata"]["name"])


def _read_recorded_spec(job: JsonObject) -> Conversion | None:
    """Return the spec that kfjob recorded in the job at its submit, if any."""
    annotation = (job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_SPEC)
    if annotation is None:
        return None
    try:
        spec = JobSpec.model_validate_json(annotation)
    except SpecError:  # of another version, or edited by hand
        return None
    fields: JsonObject = parse_json(spec.model_dump_json(exclude_defaults=True))
    namespace = {"namespace": job["metadata"]["namespace"]} if "namespace" in job["metadata"] else {}
    return Conversion(spec=fields | namespace)


def _add_overrides(conversion: Conversion, original: JsonObject, *, exact: bool) -> Conversion:
    """Return the conversion with overrides for everything that the compiled spec lacks or has with another value."""
    overrides: JsonObject = deepcopy(conversion.spec.get("overrides") or {})
    removable = ("terminationGracePeriodSeconds",) if exact else ()
    for difference in _compare_with_original(original, conversion.spec):
        if difference.new is not MISSING or difference.path[-1] in removable:
            set_value(overrides, difference.path, None if difference.new is MISSING else difference.new)
    return replace(conversion, spec=conversion.spec | {"overrides": overrides}) if overrides else conversion


def _add_notes(conversion: Conversion, original: JsonObject, notes: list[Note]) -> Conversion:
    """Return the conversion with the notes, and with a note for each remaining difference."""
    additions, changes = split_additions(_compare_with_original(original, conversion.spec))
    return replace(conversion, notes=(*conversion.notes, *notes, *changes), additions=tuple(additions))


def _compare_with_original(original: JsonObject, spec: JsonMapping) -> list[Difference]:
    """Return the changes that turn the compiled spec into the original."""
    every = differences(_compile(spec), original, ignore_empty=True)
    return [part for difference in every for part in split_list(difference)]


def _compile(spec: Mapping[str, Any]) -> JsonObject:
    """Return the PyTorchJob of a spec, in the normal form for comparisons."""
    plan = resolve(JobSpec.model_validate(spec), Context(backend="kubernetes", launch="import"))
    return normalize_job(compile_pytorchjob(plan))


def _remove_defaults(spec: JsonObject) -> JsonObject:
    """Return the spec without fields that do not change the compiled job."""
    compiled = _compile(spec)
    for path in _list_paths(spec):
        shorter = _remove_path(spec, path)
        try:
            if _compile(shorter) == compiled:
                spec = shorter
        except SpecError:  # the field is required
            continue
    return spec


def _list_paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all keys that may be omitted, a mapping before its parts."""
    if isinstance(value, dict):
        for key, item in value.items():
            if (path or key not in _FIXED) and path[:1] not in _FIXED_PATHS:
                yield (*path, key)
                yield from _list_paths(item, (*path, key))


def _remove_path(spec: JsonObject, path: tuple[str, ...]) -> JsonObject:
    key, *rest = path
    if key not in spec:
        return spec
    if not rest:
        return {name: value for name, value in spec.items() if name != key}
    return {**spec, key: _remove_path(spec[key], tuple(rest))}
