"""The models and fields of a spec by their paths, for hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from kfjob.validation.field_paths import Path


def find_model(root: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """Return the model of the mapping at a path below the root model; None if the schema has no model there."""
    model: type[BaseModel] | None = root
    is_key = False
    for part in path:
        if isinstance(part, int) or model is None or is_key:
            is_key = False
            continue
        info = model.model_fields.get(part)
        model = _find_model_in(info.annotation) if info else None
        is_key = info is not None and _is_mapping(info.annotation)
    return model


@cache
def list_fields(root: type[BaseModel]) -> Mapping[str, tuple[Path, ...]]:
    """Return the paths of all fields below a model by their last part.

    The fields of list items are left out, and so are those of the Master that are also the job's.
    """
    table: dict[str, tuple[Path, ...]] = {}
    paths = list(_walk_fields(root, ()))
    known = set(paths)
    for path in (path for path in paths if path[:1] != ("master",) or path[1:] not in known):
        table[str(path[-1])] = (*table.get(str(path[-1]), ()), path)
    return MappingProxyType(table)


def _walk_fields(model: type[BaseModel], prefix: Path) -> Iterator[Path]:
    """Yield the paths of all fields below a model, except those of list items."""
    for name, info in model.model_fields.items():
        yield (*prefix, name)
        inner = _find_model_in(info.annotation, repeated=False)
        if inner is not None:
            yield from _walk_fields(inner, (*prefix, name))


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict or any(_is_mapping(part) for part in get_args(annotation))


def _find_model_in(annotation: Any, *, repeated: bool = True) -> type[BaseModel] | None:
    """Return the model in an annotation; models in lists and mappings count if they may be `repeated`."""
    annotations: list[Any] = [annotation]
    while annotations:
        current = annotations.pop()
        if isinstance(current, type) and issubclass(current, BaseModel):
            return current
        if repeated or get_origin(current) not in (tuple, dict, list):
            annotations += get_args(current)
    return None
