"""Other tools' files to specs: what no field is for goes to `overrides`, and what the spec says otherwise is told.

A PyTorchJob is imported by doing it backwards: what the converter made is compiled, and compared with the original.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kfjob.compile import template
from kfjob.compile.manifest_diff import MISSING, Difference, differences, format_path, set_value
from kfjob.compile.pytorchjob import compile_pytorchjob
from kfjob.convert.conversion import Conversion, Note
from kfjob.convert.normalize import normalize_job, without_nulls
from kfjob.convert.pytorchjob import from_pytorchjob
from kfjob.errors import Problem, SpecError
from kfjob.events import TRAINING_CONTAINER
from kfjob.plan import Context, resolve
from kfjob.spec import api_objects, names, pytorchjob_schema
from kfjob.spec.api_objects import find_training_container
from kfjob.spec.job import JobSpec

Object = dict[str, Any]

_NEVER_LEFT_OUT = ("version", "name", "image", "overrides")


def import_pytorchjob(text: str, *, file: str | None = None) -> Conversion:
    """The spec of the PyTorchJob in a manifest, which may hold other objects too.

    Raises:
        SpecError: it is no manifest, it holds no PyTorchJob or several, or a spec cannot be made of it.
    """
    return import_objects(template.parse(text, file=file), file=file)


def import_objects(manifest: Sequence[Object], *, file: str | None = None) -> Conversion:
    """`import_pytorchjob` of objects.

    Raises:
        SpecError: there is no PyTorchJob or several, or a spec cannot be made of it.
    """
    objects = list(_listed(manifest))
    jobs = [one for one in objects if one["kind"] == api_objects.PYTORCHJOB]
    if len(jobs) != 1:
        raise SpecError([Problem(title=f"this holds {len(jobs)} {api_objects.PYTORCHJOB}s, one is wanted", file=file)])
    job, notes = _well_formed(jobs[0], file)
    others = [one for one in objects if one is not jobs[0]]
    etcd = [one for one in others if _is_own_etcd(one, job)]
    ours = (job["metadata"].get("labels") or {}).get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    recorded = _recorded(job)
    found = recorded or from_pytorchjob(job, own_etcd=bool(etcd), exact=ours)
    why = "not a part of the spec: it has to be there before the job starts"
    notes += [Note(item=f"{one['kind']} {one['metadata']['name']}", reason=why) for one in others if one not in etcd]
    found = _completed(found, normalize_job(job), exact=ours)
    return _told(found if recorded else replace(found, spec=_without_defaults(found.spec)), normalize_job(job), notes)


def check_conversion(found: Conversion, *, image: str | None = None) -> Conversion:
    """The same with the image that was named, once its spec was checked.

    Raises:
        SpecError: what came out is not a spec; every problem.
    """
    if image:
        found = replace(found, spec={"name": found.spec["name"], "image": image} | found.spec)
    _validated(found.spec)
    return found


def _listed(objects: Sequence[Object]) -> Iterator[Object]:
    for one in objects:
        if isinstance(one.get("items"), list):
            yield from _listed(one["items"])
        else:
            yield one


def _well_formed(job: Object, file: str | None) -> tuple[Object, list[Note]]:
    """The job as the API server would keep it, without the fields that it would drop, which are noted."""
    job = without_nulls(job)
    problems, notes = [], []
    for path, why in list(pytorchjob_schema.find_problems(job.get("spec", {}))):
        if why.startswith(pytorchjob_schema.UNKNOWN_FIELD):
            notes.append(Note(item=".".join(["spec", *map(str, path)]), reason=f"{why}; left out"))
            _drop(job["spec"], path)
        else:
            problems.append(Problem(title=f"`{'.'.join(['spec', *map(str, path)])}` {why}", file=file))
    for part in ("labels", "annotations"):
        said = job["metadata"].get(part, {})
        if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
            problems.append(Problem(title=f"`metadata.{part}` must be a mapping of texts", file=file))
    if not problems:
        problems = [Problem(title=why, file=file) for why in _replica_faults(job["spec"]["pytorchReplicaSpecs"])]
    if problems:
        raise SpecError(problems)
    return job, notes


def _replica_faults(replicas: Mapping[str, Any]) -> Iterator[str]:
    """What the operator's webhook would say (v1.9.3, pytorchjob_webhook.go)."""
    if not replicas or set(replicas) - {"Master", "Worker"}:
        yield "`spec.pytorchReplicaSpecs` must hold a Worker, a Master, or both"
    for kind, one in replicas.items():
        if not find_training_container(one.get("template", {}).get("spec", {})):
            yield f"`spec.pytorchReplicaSpecs.{kind}` has no container that is named `{TRAINING_CONTAINER}`"


def _drop(value: Any, path: Sequence[str | int]) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def _is_own_etcd(one: Object, job: Object) -> bool:
    labels = one["metadata"].get("labels") or {}
    ours = labels.get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    return ours and one["metadata"]["name"] == names.etcd_name(job["metadata"]["name"])


def _recorded(job: Object) -> Conversion | None:
    """The spec that kfjob put into the job when it was submitted."""
    said = (job["metadata"].get("annotations") or {}).get(api_objects.ANNOTATION_SPEC)
    if said is None:
        return None
    try:
        spec = JobSpec.model_validate_json(said)
    except SpecError:  # of another version, or changed by hand
        return None
    found: Object = json.loads(spec.model_dump_json(exclude_defaults=True))
    where = {"namespace": job["metadata"]["namespace"]} if "namespace" in job["metadata"] else {}
    return Conversion(spec=found | where)


def _completed(found: Conversion, original: Object, *, exact: bool) -> Conversion:
    """With overrides for what is missing or other. A command that was not there would hide the image's own: it is removed."""
    overrides: Object = deepcopy(found.spec.get("overrides") or {})
    removed = ("command", "terminationGracePeriodSeconds") if exact else ("command",)
    for difference in _differences(original, found.spec):
        if difference.new is not MISSING or difference.path[-1] in removed:
            set_value(overrides, difference.path, None if difference.new is MISSING else difference.new)
    return replace(found, spec=found.spec | {"overrides": overrides}) if overrides else found


def _told(found: Conversion, original: Object, notes: list[Note]) -> Conversion:
    """With a note for what kfjob adds or cannot say."""
    left = [_note(difference) for difference in _differences(original, found.spec)]
    return replace(found, notes=(*found.notes, *notes, *left))


def _differences(original: Object, spec: Mapping[str, Any]) -> list[Difference]:
    """Return what would have to change in the job of a spec to make it the original."""
    return differences(_made(spec), original, ignore_empty=True)


def _note(difference: Difference) -> Note:
    path = format_path(difference.path)
    if difference.new is MISSING:
        return Note(item=path, reason=f"added by kfjob: {json.dumps(difference.old)}")
    return Note(item=f"{path}: {json.dumps(difference.new)}", reason="cannot be said in a spec, and is left out")


def _validated(spec: Mapping[str, Any]) -> JobSpec:
    return JobSpec.model_validate(spec)


def _made(spec: Mapping[str, Any]) -> Object:
    """What the spec compiles to, in the form that originals are compared in."""
    return normalize_job(compile_pytorchjob(resolve(_validated(spec), Context(backend="kubernetes", launch="import"))))


def _without_defaults(spec: Object) -> Object:
    """The spec without what kfjob would decide in the same way."""
    whole = _made(spec)
    for path in _paths(spec):
        shorter = _without(spec, path)
        try:
            if _made(shorter) == whole:
                spec = shorter
        except SpecError:  # it is needed
            continue
    return spec


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The mappings' keys, a whole mapping before what is in it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if (path or key not in _NEVER_LEFT_OUT) and path[:1] not in (("train",), ("overrides",)):
                yield (*path, key)
                yield from _paths(inner, (*path, key))


def _without(spec: Object, path: tuple[str, ...]) -> Object:
    key, *inner = path
    if key not in spec:
        return spec
    if not inner:
        return {name: value for name, value in spec.items() if name != key}
    return {**spec, key: _without(spec[key], tuple(inner))}
