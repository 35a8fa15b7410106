"""Record the objects of a launch in an annotation, so that `relaunch` needs no template. Pure.

The job carries all objects of its template as they were submitted. A template receives the launch id as `KFJOB_LAUNCH`.
The id is unique, so replacing it in the record gives the objects of another launch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct, ValidationError, convert

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import UsageError
from kfjob.base.parsing import ShapeError, parse_json
from kfjob.base.text import plural
from kfjob.joblog.observe_config import encode
from kfjob.kinds.registry import get_job, get_kind, is_job
from kfjob.objects import api_objects

MAX_BYTES = 200_000
"""Size of the record of a template's objects; Kubernetes allows 256 KiB for all annotations of an object (apimachinery,
validation/objectmeta.go)."""


class _Metadata(Struct, rename={"generate_name": "generateName"}):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(Struct, rename="camel"):
    """The fields that every recorded object has."""

    api_version: str
    kind: str
    metadata: _Metadata


_MANAGED_BY = {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER}


def add_record(objects: Sequence[JsonObject], *, launch: str) -> tuple[JsonObject, ...]:
    """Return the objects with the launch's label and a record of all objects on the job.

    A label that says which tool manages the job stays as its author wrote it.

    The record is left out if it is too large. It holds only the name of a Secret, because people without access to secrets
    can read annotations.
    """
    text = json.dumps([_without_data(item) for item in objects], ensure_ascii=False, separators=(",", ":"))
    labels = {api_objects.LABEL_LAUNCH: launch}
    record = {api_objects.ANNOTATION_MANIFEST: text} if len(text.encode()) <= MAX_BYTES else {}
    return tuple(_add_metadata(item, labels, record) if is_job(item) else item for item in objects)


def add_observe_config(objects: Sequence[JsonObject], *, progress: str) -> list[JsonObject]:
    """Return the objects with what observation needs on the job; `progress` is the pattern of its progress lines."""
    job = get_job(objects)
    record = encode(get_kind(job).read_observe_config(job, progress=progress))
    return [
        _add_metadata(item, {}, {api_objects.ANNOTATION_OBSERVE_CONFIG: record}) if item is job else item for item in objects
    ]


def add_submit_record(
    objects: Sequence[JsonObject], *, submitter: str, spec_file: str, relaunches: str = ""
) -> tuple[JsonObject, ...]:
    """Return the objects with who submits the job, the digest and the path of the file of its spec, and the guard's relaunches
    before this launch, on the job.
    """
    records = {
        api_objects.ANNOTATION_SUBMITTED_BY: submitter,
        api_objects.ANNOTATION_SPEC_FILE: spec_file,
        api_objects.ANNOTATION_RELAUNCHES: relaunches,
    }
    given = {key: value for key, value in records.items() if value}
    return tuple(_add_metadata(item, {}, given) if given and is_job(item) else item for item in objects)


def restore_objects(record: str, *, previous_launch: str, launch: str) -> list[JsonObject]:
    """Return the objects of a record for another launch, without a record.

    Raises:
        ParseError: the record is not one that `add_record` has written.
        UsageError: the template has a Secret, which is not in the record.
    """
    objects = _parse_objects(record.replace(previous_launch, launch) if previous_launch else record)
    if secrets := [item["metadata"]["name"] for item in objects if item["kind"] == "Secret"]:
        shown = ", ".join(f"`{name}`" for name in secrets)
        raise UsageError(
            f"the template of this job creates secret {shown}, and kfjob does not record secrets",
            hint="stop the job and submit its template again, or create the secret outside the template",
        )
    return objects


def _parse_objects(record: str) -> list[JsonObject]:
    """Return the objects, of which exactly one is a job that its controller accepts."""
    objects: list[JsonObject] = parse_json(record)
    try:
        convert(objects, list[_Object])
    except ValidationError as err:
        raise ShapeError(str(err)) from err
    jobs = [item for item in objects if is_job(item)]
    if len(jobs) != 1:
        raise ShapeError(f"it has {plural(len(jobs), 'job')}")
    for problem in get_kind(jobs[0]).find_type_problems(jobs[0]):
        raise ShapeError(problem)
    return objects


def _without_data(item: JsonObject) -> JsonObject:
    """Return an object; of a Secret only its name, because its annotations may hold its data too."""
    if item["kind"] != "Secret":
        return item
    metadata = {key: item["metadata"][key] for key in ("name", "generateName", "namespace") if key in item["metadata"]}
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata}


def _add_metadata(item: JsonObject, labels: Mapping[str, str], annotations: Mapping[str, str]) -> JsonObject:
    metadata = dict(item["metadata"])
    metadata["labels"] = {**_MANAGED_BY, **(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    return {**item, "metadata": metadata}
