"""Merge `overrides` into a manifest; custom resources have no strategic merge on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge(base: Any, overrides: Any) -> Any:
    """Return `base` with `overrides` in it.

    Mappings are merged deeply, and null removes a key. Lists of named items are merged by name; overrides that name every item
    also decide their order. Any other value is replaced.
    """
    if isinstance(base, Mapping) and isinstance(overrides, Mapping):
        result = {key: value for key, value in base.items() if key not in overrides}
        for key, value in overrides.items():
            if value is not None:
                result[key] = merge(base.get(key), value)
        return {key: result[key] for key in [*base, *overrides] if key in result}
    base_items, new_items = items_by_name(base), items_by_name(overrides)
    if base_items and new_items:
        items = {name: merge(base_items.get(name, {}), item) for name, item in new_items.items()}
        return list((items if base_items.keys() <= items.keys() else base_items | items).values())
    if isinstance(overrides, Mapping):
        return merge({}, overrides) if base is None or not isinstance(base, Mapping) else overrides
    return overrides


def items_by_name(value: Any) -> dict[str, Any] | None:
    """Return the items of a list by their `name`; None for another value, and for a list without unique names."""
    if not isinstance(value, list) or not all(
        isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in value
    ):
        return None
    items = {item["name"]: item for item in value}
    return items if len(items) == len(value) else None
