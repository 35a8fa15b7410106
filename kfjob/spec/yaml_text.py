"""Parse YAML (or JSON) into plain data, with the line and column of every key and value, and with `${NAME}` replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from kfjob.errors import Problem, SpecError
from kfjob.spec.paths import Path, join_path, parse_path
from kfjob.spec.substitute import Substitution
from kfjob.spec.yaml_loader import Loader

MAX_VALUES = 100_000
"""More values than any spec has. A few lines of aliases can expand to more than fits into memory."""
MAX_DEPTH = 100
"""Deeper than any spec. libyaml's composer recurses for every level, and crashes the process at some tens of thousands."""
_MERGE = "tag:yaml.org,2002:merge"
_CONSTRUCTOR_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What PyYAML's constructor raises for scalars that do not fit their tag, such as `!!int ''`."""


@dataclass(frozen=True)
class Positions:
    """The lines and columns of the fields of one document; both count from 1."""

    file: str | None = None
    keys: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    values: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    assigned: Mapping[Path, str] = field(default_factory=dict)
    """The `--set` assignments by the path that they set."""

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


def parse_yaml(text: str, *, file: str | None = None) -> tuple[Any, Positions]:
    """Return the data of a document and its positions.

    Raises:
        SpecError: the text is not valid YAML, or a key is duplicate.
    """
    data, positions, problems = parse_yaml_with_problems(text, file=file)
    if problems:
        raise SpecError(problems)
    return data, positions


def parse_yaml_with_problems(
    text: str, *, file: str | None = None, variables: Mapping[str, str] | None = None
) -> tuple[Any, Positions, list[Problem]]:
    """Return data, positions and the problems that leave the data usable, such as a duplicate key.

    References are replaced if `variables` is not None.

    Raises:
        SpecError: the text is not valid YAML or too large, or a reference has no value.
    """
    loader = None
    walk = _Walk()
    try:
        _check_depth(text)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            walk.add_value((), node)
        if variables is not None:
            _replace_references(walk.scalars, Substitution(variables), loader)
        data = loader.construct_document(node) if node is not None else None
    except SpecError as error:
        raise SpecError([replace(problem, file=file) for problem in error.problems]) from None
    except _TooLargeError as error:
        raise SpecError([replace(error.problem, file=file)]) from None
    except yaml.MarkedYAMLError as error:
        raise SpecError([replace(p, file=file) for p in walk.problems] or [_make_syntax_problem(error, file)]) from None
    except (yaml.YAMLError, *_CONSTRUCTOR_ERRORS, RecursionError) as error:
        raise SpecError([Problem(title="invalid YAML", file=file, detail=str(error) or "nested too deeply")]) from None
    finally:
        if loader is not None:
            loader.dispose()
    return data, Positions(file, walk.keys, walk.values), [replace(problem, file=file) for problem in walk.problems]


def _replace_references(scalars: Iterable[tuple[Path, yaml.ScalarNode]], substitution: Substitution, loader: Any) -> None:
    """Replace the references in scalars, and resolve the types of unquoted scalars again."""
    for path, node in scalars:
        text = substitution.replace(node.value, path=join_path(path), position=_get_position(node))
        if text != node.value:
            is_plain = node.style is None and node.tag == loader.resolve(yaml.ScalarNode, node.value, (True, False))
            node.value = text
            if is_plain:
                node.tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    if problems := substitution.list_problems():
        raise SpecError(problems)


class _TooLargeError(Exception):
    def __init__(self, title: str, position: tuple[int, int]) -> None:
        super().__init__(title)
        self.problem = Problem(title=title, line=position[0], column=position[1])


def _check_depth(text: str) -> None:
    """Reject a text that could crash the composer. Most texts have too few brackets and too short lines for that."""
    if text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0) < 10 * MAX_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            mark = event.start_mark
            raise _TooLargeError("the YAML is nested too deeply", (mark.line + 1, mark.column + 1) if mark else (1, 1))


def _make_syntax_problem(error: yaml.MarkedYAMLError, file: str | None) -> Problem:
    mark = error.problem_mark or error.context_mark
    detail = " ".join(part for part in (error.context, error.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return Problem(title="invalid YAML", file=file, line=line, column=column, detail=detail)


class _Walk:
    """Collects the position of every key and value, the scalars with references, and problems such as duplicate keys."""

    def __init__(self) -> None:
        self.keys: dict[Path, tuple[int, int]] = {}
        self.values: dict[Path, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.scalars: list[tuple[Path, yaml.ScalarNode]] = []
        self._open_nodes: set[int] = set()
        self._scalar_nodes: set[int] = set()
        self._count = 0

    def add_value(self, path: Path, node: yaml.Node) -> None:
        """Add a value and everything inside it."""
        self.values[path] = _get_position(node)
        self._count += 1
        if self._count > MAX_VALUES:
            raise _TooLargeError("the aliases expand to too many values", _get_position(node))
        if isinstance(node, yaml.ScalarNode):
            if "$" in node.value and id(node) not in self._scalar_nodes:
                self._scalar_nodes.add(id(node))
                self.scalars.append((path, node))
        else:
            self._add_collection(path, node)

    def _add_collection(self, path: Path, node: yaml.Node) -> None:
        if len(path) > MAX_DEPTH:
            raise _TooLargeError("the YAML is nested too deeply", _get_position(node))
        if id(node) in self._open_nodes:
            self._add_problem("an alias contains itself", node, path)
            return
        self._open_nodes.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._add_mapping(path, node)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.add_value((*path, index), item)
        self._open_nodes.discard(id(node))

    def _add_mapping(self, path: Path, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == _MERGE:
                self.add_value((*path, "<<"), value)  # the merged keys have their positions elsewhere, but their number counts
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._add_problem("a key must be text", key, path)
                continue
            inner = (*path, key.value)
            if inner in self.keys:
                self._add_problem(f"duplicate key `{key.value}`", key, inner, f"first on line {self.keys[inner][0]}")
            self.keys[inner] = _get_position(key)
            self.add_value(inner, value)

    def _add_problem(self, title: str, node: yaml.Node, path: Path, detail: str | None = None) -> None:
        line, column = _get_position(node)
        self.problems.append(Problem(title=title, path=join_path(path), line=line, column=column, detail=detail))


def _get_position(node: yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return mark.line + 1, mark.column + 1
