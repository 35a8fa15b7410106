"""The page of the spec: every field, from the JSON Schema of the models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.spec.job import JobSpec

_HEAD = """\
# The job spec

This page lists every field of a job's YAML. `kfjob init` writes a first spec, `kfjob validate` reports every problem with its
line and column, `kfjob explain` shows the values of the fields that you omit, and `kfjob schema` prints a JSON Schema for
editors.

`--var` and `--env-file` replace `${NAME}` and `${NAME:-default}` in values; `--set FIELD=VALUE` overrides a field of the file.
"""
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "object": "mapping"}


def format_page() -> str:
    """Return the page: a table of the top-level fields, then one for each mapping, in the order of the fields."""
    schema = JobSpec.model_json_schema(mode="validation")
    definitions = schema.get("$defs", {})
    lines = [_HEAD, *_format_table(schema)]
    finished: set[str] = set()
    queue = [*_list_mappings(schema, "")]
    while queue:
        path, name = queue.pop(0)
        definition = definitions[name]
        if name in finished or definition.get("type") != "object" or "properties" not in definition:
            continue
        finished.add(name)
        description = " ".join(definition.get("description", "").split())
        lines += ["", f"## {path}", "", *([description, ""] if description else []), *_format_table(definition)]
        queue = [*_list_mappings(definition, path), *queue]
    return "\n".join(lines) + "\n"


def format_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _format_table(definition: JsonObject) -> Iterator[str]:
    yield "| field | value | default | |"
    yield "| --- | --- | --- | --- |"
    for name, field in definition["properties"].items():
        default = "required" if name in definition.get("required", ()) else _format_default(field.get("default"))
        yield format_row((f"`{name}`", _format_kind(field), default, field.get("description", "")))


def _format_default(value: Any) -> str:
    return "" if value in (None, {}, [], "") or isinstance(value, dict) else f"`{json.dumps(value)}`"


def _format_kind(field: JsonObject) -> str:
    """Return the kinds of value that a field accepts, in words."""
    if "$ref" in field:
        return "mapping"
    if "const" in field or "enum" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if branches := field.get("anyOf", field.get("oneOf")):
        return " or ".join(dict.fromkeys(_format_kind(branch) for branch in branches if branch.get("type") != "null"))
    if field.get("type") == "array":
        kind = _format_kind(field["items"]) if "items" in field else "values"
        return f"list of {kind}s" if kind in ("text", "mapping", "whole number", "number") else f"list: {kind}"
    return _KINDS.get(str(field.get("type")), "any")


def _list_mappings(definition: JsonObject, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the definition of each mapping in the fields of a mapping."""
    for name, field in definition.get("properties", {}).items():
        for reference in _list_references(field):
            yield (f"{path}.{name}" if path else name), reference


def _list_references(field: Any) -> Iterator[str]:
    if isinstance(field, dict):
        if isinstance(reference := field.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for value in field.values():
            yield from _list_references(value)
    elif isinstance(field, list):
        for value in field:
            yield from _list_references(value)
