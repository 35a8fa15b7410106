"""YAML (or JSON) text -> plain data, with the line and column of every key and value, and `${NAME}` replaced in its scalars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from kfjob.errors import Problem, SpecError
from kfjob.spec.paths import Path, join_path, parse_path
from kfjob.spec.substitute import Substitution
from kfjob.spec.yaml_loader import Loader

_MERGE = "tag:yaml.org,2002:merge"
_CONSTRUCTING = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""What PyYAML's constructor lets through for scalars that are not what their tag says, such as `!!int ''`."""

MOST_NODES = 100_000
"""More values than any spec has. A few lines of aliases can stand for more than fits into memory."""
DEEPEST = 100
"""Deeper than any spec. libyaml's composer calls itself for every level, and crashes the process at some tens of thousands."""


@dataclass(frozen=True)
class Positions:
    """Where the fields of one document stand. Lines and columns count from 1."""

    file: str | None = None
    keys: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    values: Mapping[Path, tuple[int, int]] = field(default_factory=dict)
    assigned: Mapping[Path, str] = field(default_factory=dict)  # what `--set` put there

    def locate(self, problem: Problem, path: Path, *, at_key: bool = False) -> Problem:
        """The problem with the place of `path`, or of the nearest field around it that stands in the file."""
        table = self.keys if at_key else self.values
        for end in range(len(path), -1, -1):
            if assignment := self.assigned.get(path[:end]):
                return replace(problem, file=assignment)
            if found := table.get(path[:end]) or self.values.get(path[:end]):
                return replace(problem, file=self.file, line=found[0], column=found[1])
        return replace(problem, file=self.file)

    def locate_all(self, problems: Iterable[Problem]) -> list[Problem]:
        """Problems that know only their path, with their places."""
        return [p if p.line is not None else self.locate(p, parse_path(p.path)) for p in problems]


def parse_yaml(text: str, *, file: str | None = None) -> tuple[Any, Positions]:
    """YAML -> plain data and positions.

    Raises:
        SpecError: for a syntax error, or a key that stands twice.
    """
    data, positions, problems = parse_yaml_with_problems(text, file=file)
    if problems:
        raise SpecError(problems)
    return data, positions


def parse_yaml_with_problems(
    text: str, *, file: str | None = None, variables: Mapping[str, str] | None = None
) -> tuple[Any, Positions, list[Problem]]:
    """`parse`, with `${NAME}` replaced where `variables` are given, and the problems that still leave data to look at.

    Raises:
        SpecError: for a syntax error, and for a document that is too large.
    """
    loader = None
    walk = _Walk()
    try:
        _check_depth(text)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            walk.value((), node)
        if variables is not None:
            _replace(walk.scalars, Substitution(variables), loader)
        data = loader.construct_document(node) if node is not None else None
    except SpecError as err:
        raise SpecError([replace(problem, file=file) for problem in err.problems]) from None
    except _TooLarge as err:
        raise SpecError([replace(err.problem, file=file)]) from None
    except yaml.MarkedYAMLError as err:
        raise SpecError([replace(p, file=file) for p in walk.problems] or [_syntax_problem(err, file)]) from None
    except (yaml.YAMLError, *_CONSTRUCTING, RecursionError) as err:
        raise SpecError([Problem(title="this is not valid YAML", file=file, detail=str(err) or "nested too deeply")]) from None
    finally:
        if loader is not None:
            loader.dispose()
    return data, Positions(file, walk.keys, walk.values), [replace(problem, file=file) for problem in walk.problems]


def _replace(scalars: Iterable[tuple[Path, yaml.ScalarNode]], substitution: Substitution, loader: Any) -> None:
    """Put values into the scalars, which are then typed again unless they stand in quotes."""
    for path, node in scalars:
        replaced = substitution.replace(node.value, path=join_path(path), place=_place(node))
        if replaced != node.value:
            plain = node.style is None and node.tag == loader.resolve(yaml.ScalarNode, node.value, (True, False))
            node.value = replaced
            if plain:
                node.tag = loader.resolve(yaml.ScalarNode, replaced, (True, False))
    if missing := substitution.problems():
        raise SpecError(missing)


class _TooLarge(Exception):
    def __init__(self, title: str, place: tuple[int, int]) -> None:
        super().__init__(title)
        self.problem = Problem(title=title, line=place[0], column=place[1])


def _check_depth(text: str) -> None:
    """Refuse what could crash the composer. Most texts are too short for it, which a look at brackets and lines shows."""
    if text.count("[") + text.count("{") + max(map(len, text.splitlines()), default=0) < 10 * DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            mark = event.start_mark
            raise _TooLarge("this is nested too deeply", (mark.line + 1, mark.column + 1) if mark else (1, 1))


def _syntax_problem(err: yaml.MarkedYAMLError, file: str | None) -> Problem:
    mark = err.problem_mark or err.context_mark
    detail = " ".join(part for part in (err.context, err.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return Problem(title="this is not valid YAML", file=file, line=line, column=column, detail=detail)


class _Walk:
    """Collects the place of every key and value, and the keys that stand twice."""

    def __init__(self) -> None:
        self.keys: dict[Path, tuple[int, int]] = {}
        self.values: dict[Path, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.scalars: list[tuple[Path, yaml.ScalarNode]] = []
        self._open: set[int] = set()
        self._scalars: set[int] = set()
        self._count = 0

    def value(self, path: Path, node: yaml.Node) -> None:
        """Note the place of a value and go into it."""
        self.values[path] = _place(node)
        self._count += 1
        if self._count > MOST_NODES:
            raise _TooLarge("the aliases of this file make it too large", _place(node))
        if isinstance(node, yaml.ScalarNode):
            if "$" in node.value and id(node) not in self._scalars:
                self._scalars.add(id(node))
                self.scalars.append((path, node))
        else:
            self._collection(path, node)

    def _collection(self, path: Path, node: yaml.Node) -> None:
        if len(path) > DEEPEST:
            raise _TooLarge("this is nested too deeply", _place(node))
        if id(node) in self._open:
            self._fault("an alias may not hold itself", node, path)
            return
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            self._mapping(path, node)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.value((*path, index), item)
        self._open.discard(id(node))

    def _mapping(self, path: Path, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == _MERGE:
                self.value((*path, "<<"), value)  # what it brings in stands elsewhere, but its size counts
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._fault("a key must be a word", key, path)
                continue
            inner = (*path, key.value)
            if inner in self.keys:
                self._fault(f"`{key.value}` stands twice", key, inner, f"first on line {self.keys[inner][0]}")
            self.keys[inner] = _place(key)
            self.value(inner, value)

    def _fault(self, title: str, node: yaml.Node, path: Path, detail: str | None = None) -> None:
        line, column = _place(node)
        self.problems.append(Problem(title=title, path=join_path(path), line=line, column=column, detail=detail))


def _place(node: yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return mark.line + 1, mark.column + 1
