"""The schema of a job spec, for editors."""

from __future__ import annotations

from typing import Any

from kfjob.spec.job import JobSpec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILE_NAME = "kfjob.schema.json"


def schema() -> dict[str, Any]:
    """JSON Schema of what may stand in a spec; what depends on several fields only `kfjob validate` checks."""
    made = JobSpec.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "title": "kfjob job spec", **{key: made[key] for key in made if key != "title"}}
