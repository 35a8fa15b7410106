"""Find what an import moves in a list whose order has a meaning: containers, and variables that name each other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kfjob.convert.conversion import Note
from kfjob.objects.differences import ItemName, Path, format_path
from kfjob.objects.merge import items_by_name

_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")
"""A variable in a value, or an escaped dollar sign (Kubernetes v1.34, third_party/forked/golang/expansion/expand.go)."""


def find_moves(compiled: Any, original: Any, path: Path = ()) -> Iterator[Note]:
    """Yield a note for each list of containers and each variable whose place in the compiled job changes its meaning."""
    old, new = (_list_items(value) for value in (compiled, original))
    key = path[-1] if path else ""
    if key in ("containers", "initContainers"):
        yield from _compare_containers(old, new, path)
    elif key == "env":
        yield from _compare_variables(old, new, path)
        return
    for name in new:
        if name in old:
            step = ItemName(name) if isinstance(original, list) else name
            yield from find_moves(old[name], new[name], (*path, step))


def _list_items(value: Any) -> Mapping[str, Any]:
    """Return the values of a mapping, or the items of a list by name; nothing for another value."""
    return value if isinstance(value, dict) else items_by_name(value) or {}


def _compare_containers(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Note]:
    compiled, original = [name for name in old if name in new], [name for name in new if name in old]
    if compiled != original:
        reason = f"they start in another order: {', '.join(compiled)} instead of {', '.join(original)}"
        yield Note(item=format_path(path), reason=reason)


def _compare_variables(old: Mapping[str, Any], new: Mapping[str, Any], path: Path) -> Iterator[Note]:
    compiled, original = _find_references(old), _find_references(new)
    for name in new:
        if name not in old:
            continue
        item = format_path((*path, ItemName(name)))
        for reference in original[name] - compiled[name]:
            yield Note(item=item, reason=f"`$({reference})` in it stays as text, because `{reference}` stands after it now")
        for reference in compiled[name] - original[name]:
            yield Note(item=item, reason=f"`$({reference})` in it is replaced, because `{reference}` stands before it now")


def _find_references(variables: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return for each variable the names in its value that the kubelet replaces, because they stand before it."""
    before: set[str] = set()
    references = {}
    for name, variable in variables.items():
        value = variable.get("value")
        named = set(_REFERENCE.findall(value)) if isinstance(value, str) else set()
        references[name] = named & before
        before.add(name)
    return references
