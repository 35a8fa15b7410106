"""Paths of fields in a spec, `("volumes", 0, "name")` or `volumes.0.name`, and their positions in its text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from msgspec import Struct, field

from kfjob.base.errors import Problem
from kfjob.base.text import is_whole

Path = tuple[str | int, ...]


def join_path(path: Path) -> str:
    """Return a path as users write it: `volumes.0.name`."""
    return ".".join(str(part) for part in path)


def parse_path(text: str) -> Path:
    """Return the path that a text such as `volumes.0.name` stands for."""
    parts = text.split(".") if text else ()
    return tuple(int(part) if is_whole(part) else part for part in parts)


def list_leaves(value: Any, is_leaf: Callable[[Any], bool] = lambda _: False, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the values in nested mappings and lists with their paths; also empty ones, and as a whole those of `is_leaf`."""
    items = {**value} if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
    if not items or is_leaf(value):
        yield path, value
        return
    for key, item in items.items():
        yield from list_leaves(item, is_leaf, (*path, key))


class Positions(Struct, frozen=True):
    """The lines and columns of the fields of one document; both count from 1."""

    file: str | None = None
    keys: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    values: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    assigned: Mapping[Path, str] = field(default_factory=dict)
    """The `--set` assignments and other options by the path that they set."""
    variables: Mapping[Path, str] = field(default_factory=dict)
    """The variables by the path of the text that begins with their value."""

    def locate(self, problem: Problem, path: Path, *, at_key: bool = False) -> Problem:
        """Return the problem with the position of `path`, or of its nearest parent in the file."""
        table = self.keys if at_key else self.values
        for end in range(len(path), -1, -1):
            if assignment := self.assigned.get(path[:end]):
                return replace(problem, file=assignment)
            if position := table.get(path[:end]) or self.values.get(path[:end]):
                return replace(problem, file=self.file, line=position[0], column=position[1])
        return replace(problem, file=self.file)

    def locate_all(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return the problems with the positions of their paths; those that have a position keep it."""
        return [p if p.line is not None else self.locate(p, parse_path(p.path)) for p in problems]
