"""Where two manifests differ, and how to write a value at a path. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from msgspec import Struct

from kfjob.base.common_types import JsonObject
from kfjob.objects.merge import items_by_name

MISSING: Any = object()
"""Stands for a value that is not there, where None is a value (JSON's null)."""


class ItemName(Struct, frozen=True):
    """A step of a path: the item of a list that has this `name`."""

    name: str


Path = tuple["str | ItemName", ...]


class Difference(Struct, frozen=True, kw_only=True):
    """One path at which two manifests differ. A side that has nothing there is `MISSING`."""

    path: Path
    old: Any
    new: Any


def differences(old: Any, new: Any, *, ignore_empty: bool = False) -> list[Difference]:
    """Return every path at which two values differ, in the order of `new`, then what only `old` has.

    Mappings are compared key by key, lists of named items by name, all other values as a whole. With `ignore_empty`, null and
    an empty text, list or mapping count as missing.
    """
    every = _differences(old, new, ())
    return [diff for diff in every if not (ignore_empty and _is_empty(diff.old) and _is_empty(diff.new))]


def _differences(old: Any, new: Any, path: Path) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*new, *old]):
            yield from _differences(old.get(key, MISSING), new.get(key, MISSING), (*path, key))
    elif (old_items := items_by_name(old)) is not None and (new_items := items_by_name(new)) is not None:
        for name in dict.fromkeys([*new_items, *old_items]):
            yield from _differences(old_items.get(name, MISSING), new_items.get(name, MISSING), (*path, ItemName(name)))
    elif old != new:
        yield Difference(path=path, old=old, new=new)


def split_list(difference: Difference) -> Iterator[Difference]:
    """Yield the items that only the old one has of two lists without unique names, if that is all that differs.

    Otherwise yield the difference itself.
    """
    old, new = difference.old, difference.new
    if not isinstance(old, list) or not isinstance(new, list) or not all(item in old for item in new):
        yield difference
        return
    for item in old:
        if item not in new:
            name = item.get("name", "") if isinstance(item, dict) else item
            yield Difference(path=(*difference.path, ItemName(str(name))), old=item, new=MISSING)


def _is_empty(value: Any) -> bool:
    return value is MISSING or value in (None, "", {}, [])


def format_path(path: Path) -> str:
    """Return the path as text: `spec.template.spec.containers[pytorch].image`."""
    return "".join(f"[{step.name}]" if isinstance(step, ItemName) else f".{step}" for step in path).removeprefix(".")


def get_value(tree: Any, path: Path) -> Any:
    """Return the value at a path; `MISSING` if there is none."""
    for step in path:
        items = items_by_name(tree) if isinstance(step, ItemName) else tree
        if not isinstance(items, dict):
            return MISSING
        tree = items.get(step.name if isinstance(step, ItemName) else step, MISSING)
    return tree


def set_value(tree: JsonObject, path: Path, value: Any) -> None:
    """Write a value at a path; mappings, lists and named items on the way are added."""
    target: Any = tree
    for step, next_step in pairwise(path):
        if isinstance(step, ItemName):
            target = _get_or_add_item(target, step.name)
        else:
            target = target.setdefault(step, [] if isinstance(next_step, ItemName) else {})
    if isinstance(path[-1], ItemName):
        target.append(value)
    else:
        target[path[-1]] = value


def _get_or_add_item(items: list[JsonObject], name: str) -> JsonObject:
    for item in items:
        if item["name"] == name:
            return item
    items.append({"name": name})
    return items[-1]
