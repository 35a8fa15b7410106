"""The JSON Schema of a job spec, for editors."""

from __future__ import annotations

from kfjob.base.common_types import JsonObject
from kfjob.spec.job import JobSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = "kfjob.schema.json"


def build_schema() -> JsonObject:
    """Return the JSON Schema of a job spec. Rules across several fields are not in it; `kfjob validate` checks them."""
    schema = JobSpec.model_json_schema(mode="validation")
    return {"$schema": DIALECT, **schema, "title": "kfjob job spec"}
