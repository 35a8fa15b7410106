"""What the API server will say of a part of a PyTorchJob: the operator's own schema (v1.9.3, `scripts/crd-schema`).

Unlike the API server, which drops a field that it does not know, we say so.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from kfjob.spec.fields import field_error

POD_PATH = "spec.pytorchReplicaSpecs.Worker.template.spec"

_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "a mapping"),
    "array": ((list, tuple), "a list"),
    "string": ((str,), "text"),
    "integer": ((int,), "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
_BITS = {"int32": 31, "int64": 63}
UNKNOWN_FIELD = "is not known to Kubernetes"
SchemaProblem = tuple[tuple[str | int, ...], str]


@cache
def _schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(resources.files("kfjob.spec").joinpath("data", "pytorchjob.json").read_text("utf-8"))
    return loaded


def check_value(where: str, value: Any, path: str) -> None:
    """Raise the first fault of `value`, which will stand at `where` in the object and stands at `path` in the spec."""
    if not value:
        return
    for inner, message in find_problems(value, where):
        full = ".".join([path, *map(str, inner)])
        raise field_error("kubernetes", f"`{full}` {message}", path=full)


def find_problems(value: Any, where: str = "spec") -> Iterator[SchemaProblem]:
    """Every fault of a value that stands at `where` in a PyTorchJob: its path from there, and what is wrong."""
    return _faults(value, _at(where.split(".")), ())


_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OVERRIDABLE = {"type": "object", "properties": {"labels": _TEXTS, "annotations": _TEXTS}}


def find_override_problems(value: dict[str, Any]) -> Iterator[SchemaProblem]:
    """Faults of what will be merged into a PyTorchJob: nothing is missing from it, and null removes."""
    whole = {"type": "object", "properties": {"metadata": _OVERRIDABLE, "spec": _at(["spec"])}}
    found = _faults(value, whole, ())
    return ((path, message) for path, message in found if not message.startswith("lacks") and _reach(value, path) is not None)


def _reach(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def _at(path: list[str]) -> dict[str, Any]:
    node = _schema()
    for part in path:
        node = _resolved(node)
        if part.isdecimal():
            node = node["items"]
        elif part in node.get("properties", node):
            node = node.get("properties", node)[part]
        else:
            node = node["additionalProperties"]
    return _resolved(node)


def _resolved(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = _schema()["definitions"][node["$ref"]] if "$ref" in node else node
    return found


def _faults(value: Any, node: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[SchemaProblem]:
    node = _resolved(node)
    if message := _scalar_fault(value, node):
        yield path, message
    elif isinstance(value, dict):
        yield from _mapping_faults(value, node, path)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _faults(item, node.get("items", {}), (*path, index))
        yield from _twice(value, node.get("x-kubernetes-list-map-keys"), path)


def _scalar_fault(value: Any, node: dict[str, Any]) -> str | None:
    if node.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            return "must be text or a whole number"
        pattern = node.get("pattern")
        return f"cannot be `{value}`" if isinstance(value, str) and pattern and not re.search(pattern, value) else None
    if "type" not in node:
        return None
    types, wanted = _TYPES[node["type"]]
    if not isinstance(value, types) or (isinstance(value, bool) and node["type"] != "boolean"):
        return f"must be {wanted}"
    if bits := _BITS.get(node.get("format", "")):
        return None if -(2**bits) <= value < 2**bits else f"is out of range: `{value}`"
    return None


def _mapping_faults(value: dict[Any, Any], node: dict[str, Any], path: tuple[str | int, ...]) -> Iterator[SchemaProblem]:
    known = node.get("properties")
    for name in node.get("required", ()):
        if name not in value:
            yield path, f"lacks `{name}`"
    for name, inner in value.items():
        if not isinstance(name, str):
            yield path, f"has a key that is not text: `{name}`"
        elif known is not None and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            yield (*path, name), UNKNOWN_FIELD + (f", did you mean `{near[0]}`?" if near else "")
        else:
            yield from _faults(inner, known[name] if known else node.get("additionalProperties", {}), (*path, name))


def _twice(items: Any, keys: list[str] | None, path: tuple[str | int, ...]) -> Iterator[SchemaProblem]:
    seen = set()
    for index, item in enumerate(items if keys else ()):
        if isinstance(item, dict):
            mark = json.dumps([item.get(key) for key in keys or ()], default=str)
            if mark in seen:
                yield (*path, index), f"stands twice (same {', '.join(keys or ())})"
            seen.add(mark)
