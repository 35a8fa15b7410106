"""`overrides`: our own merge, since custom resources have no strategic merge on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(base: Any, over: Any) -> Any:
    """`over` put into `base`: mappings deep (null removes a key), lists of things with a `name` by it, all else whole."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        result = {key: value for key, value in base.items() if key not in over}
        for key, value in over.items():
            if value is not None:
                result[key] = merged(base.get(key), value)
        return {key: result[key] for key in [*base, *over] if key in result}
    if isinstance(base, list) and isinstance(over, list) and _have_names(base) and _have_names(over):
        return _by_name(base, over)
    if isinstance(over, Mapping):
        return merged({}, over) if base is None or not isinstance(base, Mapping) else over
    return over


def _have_names(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, Mapping) and "name" in item for item in items)


def _by_name(base: list[Any], over: list[Any]) -> list[Any]:
    result = list(base)
    places = {item["name"]: index for index, item in enumerate(base)}
    for item in over:
        if (place := places.get(item["name"])) is None:
            result.append(merged({}, item))
        else:
            result[place] = merged(result[place], item)
    return result
