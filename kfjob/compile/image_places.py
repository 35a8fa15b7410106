"""Find the images of the containers in any object. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kfjob.spec.paths import Path


def find_images(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the image of every container in an object, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("containers", "initContainers") and isinstance(inner, list):
                for index, container in enumerate(inner):
                    if isinstance(container, dict) and isinstance(container.get("image"), str):
                        yield (*path, key, index, "image"), container["image"]
            else:
                yield from find_images(inner, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from find_images(item, (*path, index))
