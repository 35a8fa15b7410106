"""The types of Kubernetes objects (v1.34, `scripts/kubernetes-schema`): the parts of an object, and values of another type.

Unknown fields and kinds are no problem here: the API server drops the fields, and a cluster may serve more kinds.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from kfjob.base.common_types import JsonObject
from kfjob.base.parsing import parse_json
from kfjob.base.units import parse_quantity
from kfjob.objects.crd_schema import BITS, NOT_INT_OR_STRING, TYPES
from kfjob.validation.field_paths import Path


class Part(NamedTuple):
    """A part of an object whose type has a name: `Container`, `VolumeMount`."""

    path: Path
    type: str
    value: JsonObject


class TypeProblem(NamedTuple):
    """A value of another type. The message is the rest of a sentence that begins with the path."""

    path: Path
    message: str


@cache
def _load() -> JsonObject:
    data: JsonObject = parse_json(resources.files("kfjob.objects").joinpath("data", "kubernetes.json").read_text("utf-8"))
    return data


def find_type(api_version: str, kind: str) -> str | None:
    """Return the type of a kind of objects; None for a kind that is not known here."""
    found: str | None = _load()["kinds"].get(f"{api_version} {kind}")
    return found


def walk(value: Any, type_name: str, path: Path = ()) -> Iterator[Part | TypeProblem]:
    """Yield each part of a value of a type, the outer parts first, and each value of another type."""
    yield from _walk(value, {"$ref": type_name}, path)


def _walk(value: Any, schema: JsonObject, path: Path) -> Iterator[Part | TypeProblem]:
    name = schema.get("$ref")
    schema = _load()["definitions"][name] if name else schema
    if message := _check_scalar(value, schema):
        yield TypeProblem(path, message)
    elif isinstance(value, dict):
        if name:
            yield Part(path, name, value)
        yield from _walk_mapping(value, schema, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk(item, schema.get("items", {}), (*path, index))


def _walk_mapping(mapping: dict[Any, Any], schema: JsonObject, path: Path) -> Iterator[Part | TypeProblem]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for field in schema.get("required", ()):
        if field not in mapping and "$ref" not in properties[field]:  # Go has no absent mapping, only an empty one
            yield TypeProblem(path, f"lacks `{field}`")
    for key, item in mapping.items():
        if not isinstance(key, str):
            yield TypeProblem(path, f"has a key that is not text: `{key}`")
        elif part := properties.get(key, others):
            yield from _walk(item, part, (*path, key))


def _check_scalar(value: Any, schema: JsonObject) -> str | None:
    kind: str | None = schema.get("type")
    form: str | None = schema.get("format")
    if schema.get("x-kubernetes-quantity"):
        return None if _is_quantity(value) else f"must be a quantity, such as `2` or `16Gi`, not `{value}`"
    if form == "int-or-string":
        return None if isinstance(value, int | str) and not isinstance(value, bool) else NOT_INT_OR_STRING
    return _check_type(value, kind, form) if kind else None


def _check_type(value: Any, kind: str, form: str | None) -> str | None:
    types, noun = TYPES[kind]
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return None
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
        return f"must be {noun}"
    if form == "byte" and not _is_base64(str(value)):
        return "must be text in base64"
    bits = BITS.get(form or "")
    return f"is out of range: `{value}`" if bits and not -(2**bits) <= value < 2**bits else None


def _is_quantity(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        parse_quantity(value)
    except ValueError:
        return False
    return not isinstance(value, str) or value[:1] in "+-.0123456789"


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True
