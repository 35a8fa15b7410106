"""docs/reference/spec.md, made from the models: `python -m kfjob.spec.reference > docs/reference/spec.md`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from kfjob.spec.job import JobSpec

_HEAD = """\
# The job spec

Every field of a job's YAML. `kfjob init` writes a first one, `kfjob validate` names every fault with its line and column,
`kfjob explain` shows what was decided for the fields that were left out, and `kfjob schema` is this page for editors.

`${NAME}` and `${NAME:-default}` in a value are replaced by `--var` and `--env-file`; `--set field=value` is put over the file.

This page is made from the models by `python -m kfjob.spec.reference`.
"""
Schema = dict[str, Any]


def format_page() -> str:
    """The whole page: the top level, then the mappings in it, in the order in which they are met."""
    whole = JobSpec.model_json_schema(mode="validation")
    parts = whole.get("$defs", {})
    lines = [_HEAD, *_table(whole)]
    done: set[str] = set()
    waiting = [*_mentioned(whole, "")]
    while waiting:
        path, name = waiting.pop(0)
        part = parts[name]
        if name in done or part.get("type") != "object" or "properties" not in part:
            continue
        done.add(name)
        said = part.get("description", "").replace("\n", " ")
        lines += ["", f"## {path}", "", *([said, ""] if said else []), *_table(part)]
        waiting = [*_mentioned(part, path), *waiting]
    return "\n".join(lines) + "\n"


def _table(part: Schema) -> Iterator[str]:
    yield "| field | value | default | |"
    yield "| --- | --- | --- | --- |"
    for name, about in part["properties"].items():
        default = "required" if name in part.get("required", ()) else _default(about.get("default"))
        cells = (f"`{name}`", _kind(about), default, about.get("description", ""))
        yield format_row(cells)


def format_row(cells: Iterable[str]) -> str:
    """Of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _default(value: Any) -> str:
    return "" if value in (None, {}, [], "") or isinstance(value, dict) else f"`{json.dumps(value)}`"


def _kind(about: Schema) -> str:
    """The kinds of value that a field takes, in words."""
    if "$ref" in about:
        return "mapping"
    if "const" in about or "enum" in about:
        return ", ".join(f"`{value}`" for value in about.get("enum", [about.get("const")]))
    if every := about.get("anyOf", about.get("oneOf")):
        return " or ".join(dict.fromkeys(_kind(one) for one in every if one.get("type") != "null"))
    if about.get("type") == "array":
        inner = _kind(about["items"]) if "items" in about else "values"
        return f"list of {inner}s" if inner in ("text", "mapping", "whole number", "number") else f"list: {inner}"
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "object": "mapping"}
    return words.get(str(about.get("type")), "any")


def _mentioned(part: Schema, path: str) -> Iterator[tuple[str, str]]:
    """The mappings in the fields of a mapping, each with the path that leads to it."""
    for name, about in part.get("properties", {}).items():
        for reference in _references(about):
            yield (f"{path}.{name}" if path else name), reference


def _references(about: Any) -> Iterator[str]:
    if isinstance(about, dict):
        if isinstance(reference := about.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for inner in about.values():
            yield from _references(inner)
    elif isinstance(about, list):
        for inner in about:
            yield from _references(inner)


if __name__ == "__main__":
    sys.stdout.write(format_page())
