"""Import a PyTorchJob as a spec. What no field of the spec holds goes to `overrides`, and notes report what differs. Pure.

The fields are converted. Then the resulting spec is compiled and compared with the original, which finds the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from msgspec.structs import replace

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.base.parsing import parse_json
from kfjob.base.text import join_names
from kfjob.convert.conversion import Conversion, Note
from kfjob.joblog.events import TRAINING_CONTAINER
from kfjob.kinds.manifests import ANY_JOB, JobChoice
from kfjob.kinds.pytorchjob.importer.comparison import (
    FIXED,
    compare_with_original,
    compile_spec,
    normalize_job,
    remove_defaults,
    remove_path,
)
from kfjob.kinds.pytorchjob.importer.etcd_replacement import find_replaceable_etcd, is_own_etcd, name_object, replace_etcd
from kfjob.kinds.pytorchjob.importer.job_search import FoundJob, choose_job, find_jobs
from kfjob.kinds.pytorchjob.importer.job_to_spec import from_pytorchjob
from kfjob.kinds.pytorchjob.importer.notes import find_moves, split_additions
from kfjob.kinds.pytorchjob.importer.unsupported_parts import prepare_job
from kfjob.kinds.pytorchjob.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.objects import api_objects
from kfjob.objects.differences import MISSING, differences, format_path, set_value
from kfjob.source.manifest import ManifestObject
from kfjob.spec.job import JobSpec

_MAX_PLACES = 3
"""Differences from the recorded spec that a note names."""


def import_objects(
    objects: Sequence[ManifestObject], *, file: str | None = None, choice: JobChoice = ANY_JOB, makes_etcd: bool = True
) -> Conversion:
    """Return the spec of the PyTorchJob among the objects, or inside one of them.

    With `makes_etcd`, an etcd among the objects that only serves the job becomes one that kfjob makes for it.

    Raises:
        SpecError: there is not exactly one PyTorchJob that fits the choice, or no spec can express it.
    """
    entry = choose_job([item.value for item in objects], choice, file, list_paths=[item.path for item in objects])
    outer = objects[entry.document_index]
    job, notes = prepare_job(entry, outer)
    others = [item for item in objects if item is not outer]
    etcd = [item for item in others if is_own_etcd(item.value, job)]
    notes = [*entry.notes, *notes]
    if makes_etcd and not etcd and (etcd := find_replaceable_etcd(others, job, _list_other_jobs(objects, entry))):
        notes += replace_etcd(job, etcd)
    notes += [_explain_left_out(item) for item in others if item not in etcd]
    try:
        return _convert(job, notes, has_own_etcd=bool(etcd))
    except SpecError as error:
        raise SpecError([_locate(problem, job, entry, outer) for problem in error.problems]) from error


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
    recorded, record_notes = _read_recorded_spec(job)
    original = normalize_job(job, keep_volume_names=recorded is not None)
    conversion = recorded or from_pytorchjob(job, own_etcd=has_own_etcd, exact=is_from_kfjob)
    conversion = _add_overrides(conversion, original, exact=is_from_kfjob)
    if not recorded:
        conversion = replace(conversion, spec=remove_defaults(conversion.spec))
    return _add_notes(conversion, original, [*notes, *record_notes])


def _locate(problem: Problem, job: JsonObject, entry: FoundJob, outer: ManifestObject) -> Problem:
    """Return a problem of the job's spec with the manifest's field and its place."""
    if problem.line is not None:
        return problem
    path = find_manifest_path(problem.path, job)
    return outer.locate(use_manifest_names(problem), entry.find_path(path))


def _read_recorded_spec(job: JsonObject) -> tuple[Conversion | None, list[Note]]:
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
        compiled = compile_spec(fields)
    except SpecError:  # of another version, or edited by hand
        return None, [Note(item=item, reason="not used: it is no spec that this version of kfjob can read")]
    hidden = [f"`{name}`" for name in fields if name not in FIXED and _makes(remove_path(fields, (name,)), compiled)]
    if changes := differences(compiled, normalize_job(job, keep_volume_names=True), ignore_empty=True):
        places = join_names((f"`{format_path(change.path)}`" for change in changes), limit=_MAX_PLACES)
        lost = f"; left out with it: {join_names(hidden)}" if hidden else ""
        return None, [Note(item=item, reason=f"not used: the job differs from the spec in it, at {places}{lost}")]
    reason = f"only this annotation says {join_names(hidden)}: check it if you do not know who wrote it"
    return Conversion(spec=fields), [Note(item=item, reason=reason)] if hidden else []


def _makes(spec: JsonMapping, compiled: JsonObject) -> bool:
    try:
        return compile_spec(spec) == compiled
    except SpecError:
        return False


def _add_overrides(conversion: Conversion, original: JsonObject, *, exact: bool) -> Conversion:
    """Return the conversion with overrides for everything that the compiled spec lacks or has with another value."""
    overrides: JsonObject = deepcopy(conversion.spec.get("overrides") or {})
    removable = ("terminationGracePeriodSeconds",) if exact else ()
    for difference in compare_with_original(original, conversion.spec):
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
    additions, changes = split_additions(compare_with_original(original, conversion.spec))
    moves = find_moves(compile_spec(conversion.spec), original)
    return replace(conversion, notes=(*conversion.notes, *notes, *changes, *moves), additions=tuple(additions))
