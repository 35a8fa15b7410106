"""The schema of a PyTorchJob (operator v1.9.4, `scripts/crd-schema`): what the API server refuses, and fields that it drops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.objects.crd_schema import CrdSchema, SchemaProblem, load_definitions, load_pod_schema

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OVERRIDABLE_METADATA = {"type": "object", "properties": {"labels": _TEXTS, "annotations": _TEXTS}}
_OVERRIDES = {"type": "object", "properties": {"metadata": _OVERRIDABLE_METADATA, "spec": {"$ref": "PyTorchJobSpec"}}}
"""The parts of a PyTorchJob that a spec can override."""


@cache
def _load_schema() -> CrdSchema:
    own = load_definitions("kfjob.kinds.pytorchjob", "pytorchjob.json")
    return CrdSchema({**load_pod_schema().definitions, **own, "Overrides": _OVERRIDES})


def find_problems(spec: Any) -> Iterator[SchemaProblem]:
    """Yield every problem of the `spec` of a PyTorchJob; the problems' paths begin in it."""
    return _load_schema().find_problems(spec, "PyTorchJobSpec")


def quote_fractions(spec: Any) -> Any:
    """Return the `spec` of a PyTorchJob with text for each quantity that is a fraction."""
    return _load_schema().quote_fractions(spec, "PyTorchJobSpec")


def find_override_problems(overrides: JsonMapping) -> Iterator[SchemaProblem]:
    """Yield the problems of overrides, in which required fields may be missing, and null removes a field."""
    return _load_schema().find_override_problems(overrides, "Overrides")


def quote_override_fractions(overrides: JsonMapping) -> JsonObject:
    """Return overrides with text for each quantity that is a fraction."""
    quoted: JsonObject = _load_schema().quote_fractions(overrides, "Overrides")
    return quoted
