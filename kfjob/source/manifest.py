"""The objects of a manifest with their positions in the text, and the one namespace of a job's objects. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem
from kfjob.objects.api_objects import describe_object, is_list
from kfjob.objects.containers import show_path
from kfjob.shell.variables import find_references
from kfjob.source.template.fill import Rendered
from kfjob.validation.field_paths import Path, Positions

_TEXTS_OF_PROGRAMS = frozenset(("annotations", "args", "command", "value"))
"""Fields in which a variable is for the pod."""


class ManifestObject(Struct, frozen=True, kw_only=True):
    """One object and where its fields are in the text."""

    value: JsonObject
    positions: Positions = field(default_factory=Positions)
    path: Path = ()
    """The object's path in its document, for an item of a List."""

    @property
    def kind(self) -> str:
        """The object's kind."""
        return str(self.value["kind"])

    @property
    def title(self) -> str:
        """Kind and name, for messages."""
        return describe_object(self.value)

    @property
    def namespace(self) -> str | None:
        """The namespace that the manifest names; None without one."""
        return self.value["metadata"].get("namespace") or None

    def locate(self, problem: Problem, path: Path = (), *, at_key: bool = False) -> Problem:
        """Return the problem with a path in the object and the position of that path, or of its nearest parent."""
        located = self.positions.locate(problem, (*self.path, *path), at_key=at_key)
        return dataclasses.replace(located, path=show_path(self.value, path))

    def with_namespace(self, namespace: str) -> ManifestObject:
        """Return the object with the namespace, if it names none."""
        return replace(self, value=self.value | {"metadata": {"namespace": namespace} | self.value["metadata"]})


def list_objects(rendered: Rendered) -> Iterator[ManifestObject]:
    """Yield the objects of a manifest; a List stands for its items."""
    for value, positions in zip(rendered.objects, rendered.positions, strict=True):
        yield from _flatten(ManifestObject(value=value, positions=positions))


def _flatten(item: ManifestObject) -> Iterator[ManifestObject]:
    if not is_list(item.value):
        yield item
        return
    for index, value in enumerate(item.value["items"]):
        yield from _flatten(ManifestObject(value=value, positions=item.positions, path=(*item.path, "items", index)))


def find_unfilled(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the reference of each field that no program in the pod reads, so that only a template can have it."""
    if isinstance(value, str):
        yield from ((path, reference[0]) for reference in find_references(value))
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key not in _TEXTS_OF_PROGRAMS:
            yield from find_unfilled(item, (*path, key))


def find_namespaces(objects: Iterable[ManifestObject]) -> list[str]:
    """Return the namespaces that the objects name, in their order."""
    return list(dict.fromkeys(item.namespace for item in objects if item.namespace))
