"""Check values against the structural schema of a CRD, as the API server does.

The API server drops unknown fields; this check reports them. The data comes from the CRDs of the operators, through
`scripts/crd-schema`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.parsing import parse_json
from kfjob.base.text import find_similar
from kfjob.validation.field_paths import Path, join_path, parse_path
from kfjob.validation.spec_model import field_error

UNKNOWN_FIELD = "is not known to Kubernetes"
NOT_INT_OR_STRING = "must be text or a whole number"
_MISSING = "lacks"

TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "a mapping"),
    "array": ((list, tuple), "a list"),
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
"""The Python types of each type of a schema, and its name in messages."""
BITS = {"int32": 31, "int64": 63}
"""Bits of a whole number, without its sign."""


class SchemaProblem(NamedTuple):
    """A value that does not fit the schema. The message is the rest of a sentence that begins with the path."""

    path: Path
    message: str


def load_definitions(package: str, file: str) -> JsonObject:
    """Return the definitions in a data file of a package, by name."""
    text = resources.files(package).joinpath("data", file).read_text("utf-8")
    definitions: JsonObject = parse_json(text)["definitions"]
    return definitions


@cache
def load_pod_schema() -> CrdSchema:
    """Return the schema of what every kind of jobs has: `PodTemplate`, and the `Metrics` of an autoscaler."""
    return CrdSchema(load_definitions("kfjob.objects", "pod.json"))


class CrdSchema(Struct, frozen=True):
    """Definitions by name. The path of a schema begins with the name of a definition: `PodTemplate.spec.affinity`."""

    definitions: Mapping[str, JsonMapping]

    def check_value(self, value: Any, schema_path: str, spec_path: str) -> None:
        """Raise the first problem of a value, which is at `spec_path` in a spec and has the schema at `schema_path`."""
        if not value:
            return
        for problem in self.find_problems(value, schema_path):
            path = join_path((spec_path, *problem.path))
            raise field_error("kubernetes", f"`{path}` {problem.message}", path=path)

    def find_problems(self, value: Any, schema_path: str) -> Iterator[SchemaProblem]:
        """Yield every problem of a value that has the schema at `schema_path`; the problems' paths begin at the value."""
        return self._find_problems(value, self._find_schema(parse_path(schema_path)), ())

    def find_override_problems(self, overrides: JsonMapping, schema_path: str) -> Iterator[SchemaProblem]:
        """Yield the problems of overrides, in which required fields may be missing, and null removes a field."""
        for problem in self.find_problems(overrides, schema_path):
            if not problem.message.startswith(_MISSING) and _get_value(overrides, problem.path) is not None:
                yield problem

    def quote_fractions(self, value: Any, schema_path: str) -> Any:
        """Return a value with text for each quantity that is a fraction, such as `cpu: 0.5`.

        The API server reads such a number in a Pod, and refuses it in a custom resource: "must be of type integer,string".
        """
        return self._quote_fractions(value, self._find_schema(parse_path(schema_path)))

    def _quote_fractions(self, value: Any, schema: JsonMapping) -> Any:
        schema = self._resolve(schema)
        if isinstance(value, float) and schema.get("x-kubernetes-int-or-string") and "pattern" in schema:
            return str(value)
        if isinstance(value, dict):
            properties, other = schema.get("properties", {}), schema.get("additionalProperties", {})
            return {key: self._quote_fractions(item, properties.get(key, other)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._quote_fractions(item, schema.get("items", {})) for item in value)
        return value

    def _find_schema(self, path: Path) -> JsonMapping:
        """Return the schema of the values at a path."""
        name, *parts = path
        schema = self.definitions[str(name)]
        for part in parts:
            schema = self._resolve(schema)
            if isinstance(part, int):
                schema = schema["items"]
            elif part in schema.get("properties", {}):
                schema = schema["properties"][part]
            else:
                schema = schema["additionalProperties"]
        return self._resolve(schema)

    def _resolve(self, schema: JsonMapping) -> JsonMapping:
        """Return the definition that a schema refers to, or the schema itself."""
        return self.definitions[schema["$ref"]] if "$ref" in schema else schema

    def _find_problems(self, value: Any, schema: JsonMapping, path: Path) -> Iterator[SchemaProblem]:
        schema = self._resolve(schema)
        if message := _check_scalar(value, schema):
            yield SchemaProblem(path, message)
        elif isinstance(value, dict):
            yield from self._find_mapping_problems(value, schema, path)
        elif isinstance(value, list | tuple):
            item_schema = self._resolve(schema.get("items", {}))
            for index, item in enumerate(value):
                yield from self._find_problems(item, item_schema, (*path, index))
            yield from _find_duplicates(value, schema.get("x-kubernetes-list-map-keys"), path)

    def _find_mapping_problems(self, mapping: dict[Any, Any], schema: JsonMapping, path: Path) -> Iterator[SchemaProblem]:
        properties = schema.get("properties")
        for name in schema.get("required", ()):
            if name not in mapping:
                yield SchemaProblem(path, f"{_MISSING} `{name}`")
        for name, value in mapping.items():
            if not isinstance(name, str):
                yield SchemaProblem(path, f"has a key that is not text: `{name}`")
            elif properties is not None and name not in properties:
                parents = [key for key, child in properties.items() if name in (self._resolve(child).get("properties") or ())]
                similar = f"{parents[0]}.{name}" if len(parents) == 1 else find_similar(name, properties)
                suggestion = f", did you mean `{similar}`?" if similar else ""
                yield SchemaProblem((*path, name), UNKNOWN_FIELD + suggestion)
            else:
                value_schema = properties[name] if properties else schema.get("additionalProperties", {})
                yield from self._find_problems(value, value_schema, (*path, name))


def _get_value(value: Any, path: Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _check_scalar(value: Any, schema: JsonMapping) -> str | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            return NOT_INT_OR_STRING
        pattern = schema.get("pattern")
        return f"cannot be `{value}`" if isinstance(value, str) and pattern and not re.search(pattern, value) else None
    if "type" not in schema:
        return None
    types, kind = TYPES[schema["type"]]
    if not isinstance(value, types) or (isinstance(value, bool) and schema["type"] != "boolean"):
        return f"must be {kind}"
    if bits := BITS.get(schema.get("format", "")):
        return None if -(2**bits) <= value < 2**bits else f"is out of range: `{value}`"
    return None


def _find_duplicates(items: Any, keys: list[str] | None, path: Path) -> Iterator[SchemaProblem]:
    identities = set()
    for index, item in enumerate(items if keys else ()):
        if isinstance(item, dict) and item.get((keys or ("",))[0]) is not None:  # overrides may name an item in another way
            identity = json.dumps([item.get(key) for key in keys or ()], default=str)
            if identity in identities:
                yield SchemaProblem((*path, index), f"is a duplicate (same {', '.join(keys or ())})")
            identities.add(identity)
