"""Import PyTorchJobs as specs. What no field of the spec holds goes to `overrides`, and notes report what differs.

The converter reads the fields. Then the resulting spec is compiled and compared with the original, which finds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

from kfjob.api.specs.import_compile import compile_spec, remove_defaults
from kfjob.api.specs.import_etcd import find_replaceable_etcd, is_own_etcd, name_object, replace_etcd
from kfjob.api.specs.import_notes import split_additions
from kfjob.api.specs.import_order import find_moves
from kfjob.api.specs.import_record import read_recorded_spec
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.convert.conversion import Conversion, Note
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.kinds.pytorchjob.check import EMPTY_WORKER, EMPTY_WORKER_REASON, find_job_problems, remove_empty_worker
from kfjob.kinds.pytorchjob.found_jobs import ANY_JOB, Choice, FoundJob, choose_job, find_jobs
from kfjob.kinds.pytorchjob.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.kinds.pytorchjob.normalize import normalize_job
from kfjob.kinds.pytorchjob.schema import quote_fractions
from kfjob.kinds.pytorchjob.spec_fields import from_pytorchjob
from kfjob.objects import api_objects
from kfjob.objects.differences import MISSING, Difference, differences, set_value, split_list
from kfjob.shell.variables import find_references
from kfjob.source.foreign_formats import UNFILLED, describe_filling, find_template_problem
from kfjob.source.manifest import ManifestObject, list_objects
from kfjob.source.template import fill as template
from kfjob.source.template.fill import find_object_problem
from kfjob.spec.job import JobSpec
from kfjob.validation.paths import Path, join_path

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
        if problem := find_template_problem(text, error.problems, file):
            raise SpecError([problem]) from error
        raise


def import_objects(
    objects: Sequence[ManifestObject], *, file: str | None = None, choice: Choice = ANY_JOB, makes_etcd: bool = True
) -> Conversion:
    """Return the spec of the PyTorchJob among the objects, or inside one of them.

    With `makes_etcd`, an etcd among the objects that only serves the job becomes one that kfjob makes for it.

    Raises:
        SpecError: there is not exactly one PyTorchJob that fits the choice, or no spec can express it.
    """
    entry = choose_job([item.value for item in objects], choice, file, list_paths=[item.path for item in objects])
    holder = objects[entry.document_index]
    job, notes = _check_job(entry, holder)
    others = [item for item in objects if item is not holder]
    etcd = [item for item in others if is_own_etcd(item.value, job)]
    notes = [*entry.notes, *notes]
    if makes_etcd and not etcd and (etcd := find_replaceable_etcd(others, job, _list_other_jobs(objects, entry))):
        notes += replace_etcd(job, etcd)
    notes += [_explain_left_out(item) for item in others if item not in etcd]
    try:
        return _convert(job, notes, has_own_etcd=bool(etcd))
    except SpecError as error:
        raise SpecError([_locate(problem, job, entry, holder) for problem in error.problems]) from error


def _list_other_jobs(objects: Sequence[ManifestObject], entry: FoundJob) -> list[JsonObject]:
    jobs = find_jobs([item.value for item in objects])
    return [job.job for job in jobs if (job.document_index, job.path) != (entry.document_index, entry.path)]


def _explain_left_out(item: ManifestObject) -> Note:
    if find_jobs([item.value]):
        return Note(item=name_object(item), reason="left out: a job of its own, which `--name` or `--at` chooses")
    return Note(item=name_object(item), reason="not a part of the spec: it must exist before the job starts")


def _convert(job: JsonObject, notes: list[Note], *, has_own_etcd: bool) -> Conversion:
    """Return the spec of a job, and notes for what differs."""
    is_from_kfjob = (job["metadata"].get("labels") or {}).get(api_objects.LABEL_MANAGED_BY) == api_objects.FIELD_MANAGER
    recorded, record_notes = read_recorded_spec(job)
    original = normalize_job(job, keep_volume_names=recorded is not None)
    conversion = recorded or from_pytorchjob(job, own_etcd=has_own_etcd, exact=is_from_kfjob)
    conversion = _add_overrides(conversion, original, exact=is_from_kfjob)
    if not recorded:
        conversion = replace(conversion, spec=remove_defaults(conversion.spec))
    return _add_notes(conversion, original, [*notes, *record_notes])


def _locate(problem: Problem, job: JsonObject, entry: FoundJob, holder: ManifestObject) -> Problem:
    """Return a problem of the job's spec with the manifest's field and its place."""
    if problem.line is not None:
        return problem
    path = find_manifest_path(problem.path, job)
    return holder.locate(use_manifest_names(problem), entry.find_path(path))


def check_conversion(conversion: Conversion, *, image: str | None = None) -> Conversion:
    """Validate the spec of a conversion, with the image if one is given, and return the conversion.

    Raises:
        SpecError: the spec is not valid; with all problems.
    """
    if image:
        conversion = replace(conversion, spec={"name": conversion.spec["name"], "image": image} | conversion.spec)
    JobSpec.model_validate(conversion.spec)
    return conversion


def _check_job(entry: FoundJob, holder: ManifestObject) -> tuple[JsonObject, list[Note]]:
    """Return the job as the API server stores it, and a note for each unknown field, which the API server drops."""
    if unusable := find_object_problem(entry.job):
        raise SpecError([holder.locate(Problem(title=unusable.title), entry.find_path(unusable.path))])
    given = api_objects.without_nulls(entry.job)
    job = remove_empty_worker(given)
    notes = [Note(item=f"{join_path(EMPTY_WORKER)}.replicas: 0", reason=EMPTY_WORKER_REASON)] if job is not given else []
    if isinstance(job.get("spec"), dict):
        job["spec"] = quote_fractions(job["spec"])
    if unfilled := next(find_unfilled(job.get("spec"), ("spec",)), None):
        path, reference = unfilled
        example = Problem(title=UNFILLED, detail=f"for example `{reference}`")
        problem_at_line = holder.locate(example, entry.find_path(path))
        raise SpecError([replace(problem_at_line, hint=describe_filling(problem_at_line.file))])
    problems: list[Problem] = []
    for problem in find_job_problems(job):
        if problem.is_unknown_field:
            notes.append(Note(item=join_path(problem.path), reason=f"{problem.title.partition('` ')[2]}; left out"))
            _delete(job, problem.path)
            continue
        unlocated = Problem(title=problem.title, hint=problem.hint)
        problems.append(holder.locate(unlocated, entry.find_path(problem.path), at_key=problem.is_at_key))
    if problems:
        raise SpecError(problems)
    return job, [*notes, *_list_lost_metadata(job), *_list_lost_pod_metadata(job), *_list_empty_pull_secrets(job)]


def _list_lost_metadata(job: JsonMapping) -> Iterator[Note]:
    for field, reason in _LOST_METADATA.items():
        if job["metadata"].get(field):
            yield Note(item=f"metadata.{field}", reason=f"left out: {reason}")
    templates = {
        f"spec.pytorchReplicaSpecs.{kind}.template.metadata": (replica.get("template") or {}).get("metadata") or {}
        for kind, replica in job["spec"]["pytorchReplicaSpecs"].items()
    }
    for path, metadata in {"metadata": job["metadata"], **templates}.items():
        manager = (metadata.get("labels") or {}).get(api_objects.LABEL_MANAGED_BY)
        if manager not in (None, api_objects.FIELD_MANAGER):
            item = f"{path}.labels.{api_objects.LABEL_MANAGED_BY}: {manager}"
            yield Note(item=item, reason=f"left out: the spec's job has `{api_objects.FIELD_MANAGER}`")


_TEXTS_OF_PROGRAMS = frozenset(("annotations", "args", "command", "value"))
"""Fields in which a variable is for the pod."""


def find_unfilled(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the reference of each field that no program in the pod reads, so that only a template can have it."""
    if isinstance(value, str):
        yield from ((path, reference[0]) for reference in find_references(value))
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key not in _TEXTS_OF_PROGRAMS:
            yield from find_unfilled(item, (*path, key))


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


def _add_overrides(conversion: Conversion, original: JsonObject, *, exact: bool) -> Conversion:
    """Return the conversion with overrides for everything that the compiled spec lacks or has with another value."""
    overrides: JsonObject = deepcopy(conversion.spec.get("overrides") or {})
    removable = ("terminationGracePeriodSeconds",) if exact else ()
    for difference in _compare_with_original(original, conversion.spec):
        if difference.new is not MISSING or difference.path[-1] in removable:
            set_value(overrides, difference.path, None if difference.new is MISSING else difference.new)
    _keep_container_order(overrides, original)
    return replace(conversion, spec=conversion.spec | {"overrides": overrides}) if overrides else conversion


def _keep_container_order(overrides: JsonObject, original: JsonObject) -> None:
    """Name the training container in overrides that have another container, which starts before it in the original."""
    for kind, replica in (overrides.get("spec") or {}).get("pytorchReplicaSpecs", {}).items():
        pod = (replica.get("template") or {}).get("spec") or {}
        order = [item["name"] for item in original["spec"]["pytorchReplicaSpecs"][kind]["template"]["spec"]["containers"]]
        if pod.get("containers") and order[0] != TRAINING_CONTAINER:
            items = {item["name"]: item for item in pod["containers"]}
            pod["containers"] = [items.get(name, {"name": name}) for name in order]


def _add_notes(conversion: Conversion, original: JsonObject, notes: list[Note]) -> Conversion:
    """Return the conversion with the notes, and with a note for each remaining difference."""
    additions, changes = split_additions(_compare_with_original(original, conversion.spec))
    moves = find_moves(compile_spec(conversion.spec), original)
    return replace(conversion, notes=(*conversion.notes, *notes, *changes, *moves), additions=tuple(additions))


def _compare_with_original(original: JsonObject, spec: JsonMapping) -> list[Difference]:
    """Return the changes that turn the compiled spec into the original."""
    every = differences(compile_spec(spec), original, ignore_empty=True)
    return [part for difference in every for part in split_list(difference)]
