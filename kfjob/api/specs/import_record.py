"""Read the spec that kfjob recorded in a job at its submit. Pure."""

from __future__ import annotations

from kfjob.api.specs.import_compile import FIXED, compile_spec, remove_path
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import SpecError
from kfjob.base.parsing import parse_json
from kfjob.base.text import join_names
from kfjob.convert.conversion import Conversion, Note
from kfjob.kinds.pytorchjob.normalize import normalize_job
from kfjob.objects import api_objects
from kfjob.objects.differences import differences, format_path
from kfjob.spec.job import JobSpec

_MAX_PLACES = 3
"""Differences from the recorded spec that a note names."""


def read_recorded_spec(job: JsonObject) -> tuple[Conversion | None, list[Note]]:
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
