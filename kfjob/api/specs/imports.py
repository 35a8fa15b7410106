"""Import PyTorchJobs as specs. What no field of the spec holds goes to `overrides`, and notes report what differs.

The converter reads the fields. Then the resulting spec is compiled and compared with the original, which finds the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kfjob.api.specs.import_notes import split_additions
from kfjob.api.specs.import_order import find_moves
from kfjob.common_types import JsonMapping, JsonObject
from kfjob.compile import template
from kfjob.compile.job_check import find_job_problems
from kfjob.compile.manifest import ManifestObject, list_objects
from kfjob.compile.manifest_diff import MISSING, Difference, differences, format_path, set_value, split_list
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.compile.template import find_object_problem
from kfjob.compile.workload import find_workload
from kfjob.convert.conversion import Conversion, Note
from kfjob.convert.found_jobs import ANY_JOB, Choice, FoundJob, choose_job
from kfjob.convert.normalize import normalize_job
from kfjob.convert.pytorchjob import from_pytorchjob
from kfjob.errors import Problem, SpecError
from kfjob.lint.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.parsing import parse_json
from kfjob.plan import Context, resolve
from kfjob.plan.values import DEFAULT_ETCD_IMAGE
from kfjob.spec import api_objects, names
from kfjob.spec.foreign_formats import UNFILLED, describe_filling, find_template_problem
from kfjob.spec.job import JobSpec
from kfjob.spec.paths import Path, join_path
from kfjob.spec.variables import find_references
from kfjob.text import join_names

_FIXED = ("version", "name", "image", "overrides")
"""Fields that `_remove_defaults` never removes."""
_FIXED_PATHS = (("train",), ("overrides",))
"""Paths below which it removes nothing."""
_MAX_PLACES = 3
"""Differences from the recorded spec that a note names."""


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
        return import_objects(list(list_objects(template.parse(text, file=file))), file=file, choice=choice)
    except SpecError as error:
        if problem := find_template_problem(text, file):
            raise SpecError([problem]) from error
        raise


def import_objects(
    objects: Sequence[ManifestObject], *, file: str | None = None, choice: Choice = ANY_JOB, replace_etcd: bool = True
) -> Conversion:
    """Return the spec of the PyTorchJob among the objects, or inside one of them.

    With `replace_etcd`, an etcd among the objects that only serves the job becomes one that kfjob makes for it.

    Raises:
        SpecError: there is not exactly one PyTorchJob that fits the choice, or no spec can express it.
    """
    found = choose_job([item.value for item in objects], choice, file)
    job, notes = _check_job(found, objects[found.document_index])
    notes = [*found.notes, *notes]
    others = [item for item in objects if item is not objects[found.document_index]]
    etcd = [item for item in others if _is_own_etcd(item.value, job)]
    replaced = _find_replaceable_etcd(others, job) if replace_etcd and not etcd else []
    if replaced:
        reason = "left out: `rendezvous: etcd` makes an etcd for the job, and removes it with the job"
        notes.append(Note(item=", ".join(map(_name_object, replaced)), reason=reason))
        policy = job["spec"]["elasticPolicy"]
        notes += _remove_waits(job, str(policy["rdzvHost"]).partition(".")[0])
        reason = f"left out: that of the job's own etcd, which runs `{DEFAULT_ETCD_IMAGE}`"
        notes.append(Note(item=f"spec.elasticPolicy.rdzvHost: {policy.pop('rdzvHost')}", reason=reason))
        policy.pop("rdzvPort", None)
    is_from_kfjob = (job["metadata"].get("labels") or {}).get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    original = normalize_job(job)
    recorded, record_notes = _read_recorded_spec(job, original)
    notes += record_notes
    conversion = recorded or from_pytorchjob(job, own_etcd=bool(etcd or replaced), exact=is_from_kfjob)
    reason = "not a part of the spec: it must exist before the job starts"
    notes += [Note(item=_name_object(item), reason=reason) for item in others if item not in (*etcd, *replaced)]
    try:
        conversion = _add_overrides(conversion, original, exact=is_from_kfjob)
        if not recorded:
            conversion = replace(conversion, spec=_remove_defaults(conversion.spec))
        return _add_notes(conversion, original, notes)
    except SpecError as error:
        raise SpecError([_locate(problem, job, found, objects) for problem in error.problems]) from error


def _locate(problem: Problem, job: JsonObject, found: FoundJob, objects: Sequence[ManifestObject]) -> Problem:
    """Return a problem of the job's spec with the manifest's field and its place."""
    if problem.line is not None:
        return problem
    path = find_manifest_path(problem.path, job)
    return objects[found.document_index].locate(use_manifest_names(problem), (*found.path, *path))


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion


def _check_job(found: FoundJob, holder: ManifestObject) -> tuple[JsonObject, list[Note]]:
    """Return the job as the API server stores it, and a note for each unknown field, which the API server drops."""
    if unusable := find_object_problem(found.job):
        raise SpecError([holder.locate(Problem(title=unusable.title), (*found.path, *unusable.path))])
    job = api_objects.without_nulls(found.job)
    problems, notes = [], []
    for problem in find_job_problems(job):
        if problem.is_unknown_field:
            notes.append(Note(item=join_path(problem.path), reason=f"{problem.title.partition('` ')[2]}; left out"))
            _delete(job, problem.path)
            continue
        shown = Problem(title=problem.title, hint=problem.hint)
        problems.append(holder.locate(shown, (*found.path, *problem.path), at_key=problem.is_at_key))
    if problems:
        raise SpecError(problems)
    if unfilled := next(_find_unfilled(job["spec"], ("spec",)), None):
        path, reference = unfilled
        located = holder.locate(Problem(title=UNFILLED, detail=f"for example `{reference}`"), (*found.path, *path))
        raise SpecError([replace(located, hint=describe_filling(located.file))])
    for field, reason in _LOST_METADATA.items():
        if job["metadata"].get(field):
            notes.append(Note(item=f"metadata.{field}", reason=f"left out: {reason}"))
    notes += [*_list_lost_pod_metadata(job), *_list_empty_pull_secrets(job)]
    return job, notes


_TEXTS_OF_PROGRAMS = frozenset(("annotations", "args", "command", "value"))
"""Fields in which a variable is for the pod."""


def _find_unfilled(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the reference of each field that no program in the pod reads, so that only a template can have it."""
    if isinstance(value, str):
        yield from ((path, reference[0]) for reference in find_references(value))
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key not in _TEXTS_OF_PROGRAMS:
            yield from _find_unfilled(item, (*path, key))


def _list_lost_pod_metadata(job: JsonMapping) -> Iterator[Note]:
    for kind, replica in job["spec"]["pytorchReplicaSpecs"].items():
        for field, value in replica.get("template", {}).get("metadata", {}).items():
            if value and field not in ("labels", "annotations", "creationTimestamp"):
                item = f"spec.pytorchReplicaSpecs.{kind}.template.metadata.{field}"
                yield Note(item=item, reason="left out: of a pod's metadata, a spec has the labels and annotations")


def _list_empty_pull_secrets(job: JsonMapping) -> Iterator[Note]:
    for kind, replica in job["spec"]["pytorchReplicaSpecs"].items():
        secrets = replica.get("template", {}).get("spec", {}).get("imagePullSecrets") or ()
        if not all(secret.get("name") for secret in secrets):
            item = f"spec.pytorchReplicaSpecs.{kind}.template.spec.imagePullSecrets"
            yield Note(item=item, reason="an item without a name is left out: it names no secret")


def _delete(value: Any, path: Sequence[str | int]) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def _name_object(item: ManifestObject) -> str:
    return f"{item.kind} {api_objects.describe_name(item.value)}"


def _find_replaceable_etcd(objects: Sequence[ManifestObject], job: JsonObject) -> list[ManifestObject]:
    """Return the Service at which the job's agents meet and the etcd behind it, if both are among the objects."""
    policy = job["spec"].get("elasticPolicy") or {}
    if policy.get("rdzvBackend") not in ("etcd", "etcd-v2"):
        return []
    workload = find_workload((item.value for item in objects), str(policy.get("rdzvHost") or ""))
    if workload is None or "etcd" not in workload.image:
        return []
    return [item for item in objects if item.value is workload.service or item.value is workload.pods]


def _remove_waits(job: JsonObject, service: str) -> list[Note]:
    """Remove the init containers that ask for a Service, because it is left out and they would wait for ever."""
    pattern = re.compile(rf"(?<![\w.-]){re.escape(service)}(?![\w-])")
    notes: dict[str, Note] = {}
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        pod = replica.get("template", {}).get("spec", {})
        containers = pod.get("initContainers") or ()
        waits = [c for c in containers if any(pattern.search(str(c.get(field))) for field in ("command", "args", "env"))]
        reason = (
            f"left out: it asks for `{service}`, which is left out too; kfjob's own init container waits for the job's etcd"
        )
        notes |= {item: Note(item=item, reason=reason) for item in (f"init container {c.get('name')}" for c in waits)}
        if waits:
            pod["initContainers"] = [container for container in containers if container not in waits]
    return list(notes.values())


def _is_own_etcd(item: JsonObject, job: JsonObject) -> bool:
    labels = item["metadata"].get("labels") or {}
    is_from_kfjob = labels.get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    return is_from_kfjob and item["metadata"].get("name") == names.etcd_name(job["metadata"]["name"])


def _read_recorded_spec(job: JsonObject, original: JsonObject) -> tuple[Conversion | None, list[Note]]:
    """Return the spec that kfjob recorded in the job at its submit, if it makes exactly this job, and notes about the record.

    Anybody can write the annotation, so it is used for nothing that the job contradicts, and a note names what it alone says.
    """
    item = f"metadata.annotations.{api_objects.ANNOTATION_SPEC}"
    annotation = (job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_SPEC)
    if annotation is None:
        return None, []
    try:
        spec = JobSpec.model_validate_json(annotation)
        fields: JsonObject = parse_json(spec.model_dump_json(exclude_defaults=True))
        fields |= {"namespace": job["metadata"]["namespace"]} if "namespace" in job["metadata"] else {}
        compiled = _compile(fields)
    except SpecError:  # of another version, or edited by hand
        return None, [Note(item=item, reason="not used: it is no spec that this version of kfjob can read")]
    hidden = [f"`{name}`" for name in fields if name not in _FIXED and _makes(_remove_path(fields, (name,)), compiled)]
    if changes := differences(compiled, original, ignore_empty=True):
        places = join_names((f"`{format_path(change.path)}`" for change in changes), limit=_MAX_PLACES)
        lost = f"; left out with it: {join_names(hidden)}" if hidden else ""
        return None, [Note(item=item, reason=f"not used: the job differs from the spec in it, at {places}{lost}")]
    reason = f"only this annotation says {join_names(hidden)}: check it if you do not know who wrote it"
    return Conversion(spec=fields), [Note(item=item, reason=reason)] if hidden else []


def _makes(spec: JsonMapping, compiled: JsonObject) -> bool:
    try:
        return _compile(spec) == compiled
    except SpecError:
        return False


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
    moves = find_moves(_compile(conversion.spec), original)
    return replace(conversion, notes=(*conversion.notes, *notes, *changes, *moves), additions=tuple(additions))


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
    try:
        own_variables = _list_variables(_compile({key: value for key, value in spec.items() if key != "env"}))
    except SpecError:  # something needs a variable
        own_variables = set()
    for path in _list_paths(spec):
        if path[-2:-1] == ("env",) and path[-1] not in own_variables:  # hundreds of variables are common
            continue
        shorter = _remove_path(spec, path)
        try:
            if _compile(shorter) == compiled:
                spec = shorter
        except SpecError:  # the field is required
            continue
    return spec


def _list_variables(job: JsonMapping) -> set[str]:
    """Return the names of the variables of all training containers."""
    pods = (replica["template"]["spec"] for replica in job["spec"]["pytorchReplicaSpecs"].values())
    return {item["name"] for pod in pods for item in api_objects.find_training_container(pod).get("env") or ()}


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
