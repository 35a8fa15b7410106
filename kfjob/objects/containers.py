"""Find the containers in any object. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.validation.field_paths import Path

_LISTS = ("containers", "initContainers")


def find_containers(value: Any, path: Path = ()) -> Iterator[tuple[Path, JsonObject]]:
    """Yield every container in an object, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in _LISTS and isinstance(inner, list):
                yield from (((*path, key, i), container) for i, container in enumerate(inner) if isinstance(container, dict))
            else:
                yield from find_containers(inner, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_containers(item, (*path, index))


def show_path(value: Any, path: Path) -> str:
    """Return a path in an object for messages: containers by name, other items by index, as `containers[pytorch].args[1]`."""
    text = ""
    for step, before in zip(path, ("", *path), strict=False):
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            value = None
        name = value.get("name") if before in _LISTS and isinstance(value, dict) else None
        text += f"[{name}]" if isinstance(name, str) and name else f"[{step}]" if isinstance(step, int) else f".{step}"
    return text.removeprefix(".")
