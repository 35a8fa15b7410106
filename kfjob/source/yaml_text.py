"""Parse YAML (or JSON) into plain data, with the line and column of every key and value, and with `${NAME}` replaced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml
from msgspec import Struct

from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import IMPOSSIBLE, NO_HOLDER, describe_impossible
from kfjob.source.substitute import Substitution
from kfjob.source.yaml_loader import (
    InvalidYamlError,
    Loader,
    TooLargeError,
    compose_documents,
    construct_value,
    get_position,
    join_surrogates,
)
from kfjob.source.yaml_syntax import describe_syntax_error
from kfjob.validation.field_paths import Path, Positions, join_path

MAX_PROBLEMS = 100
"""Reported problems of a YAML text; a text of 4 MiB can have a million."""
_MERGE = "tag:yaml.org,2002:merge"


class _TooManyProblemsError(Exception):
    """The text has `MAX_PROBLEMS` problems, which are in the walk."""


class ParsedText(Struct, frozen=True, kw_only=True):
    """The data of a document and the problems that leave it usable, such as a duplicate key."""

    data: Any
    positions: Positions
    problems: list[Problem]
    unresolved: frozenset[Path]
    """The scalars that contain a reference without a value; the reference stays as it is, and has a problem."""
    missing: frozenset[str] = frozenset()
    """The names without a value that these scalars need."""
    notes: tuple[Problem, ...] = ()
    """What the writer of the document may not expect."""


def parse_yaml(text: str, *, file: str | None = None) -> tuple[Any, Positions]:
    """Return the data of a document and its positions.

    Raises:
        SpecError: the text is not valid YAML, or a key is duplicate.
    """
    parsed = parse_yaml_with_problems(text, file=file)
    if parsed.problems:
        raise SpecError(parsed.problems)
    return parsed.data, parsed.positions


def parse_yaml_with_problems(text: str, *, file: str | None = None, variables: Mapping[str, str] | None = None) -> ParsedText:
    """Return the data of a document. References are replaced if `variables` is not None.

    Raises:
        SpecError: the text is not valid YAML or too large.
    """
    walk = _Walk(file)
    text = join_surrogates(text)
    try:
        nodes = compose_documents(text, single=True)
        for node in nodes:
            walk.add_value((), node)
        substitution = Substitution(variables or {})
        unresolved = _replace_references(walk, substitution) if variables is not None else frozenset()
        data = construct_value(nodes[0]) if nodes else None
    except _TooManyProblemsError:
        raise SpecError(walk.problems) from None
    except TooLargeError as error:
        raise SpecError([replace(error.problem, file=file)]) from None
    except yaml.MarkedYAMLError as error:
        raise SpecError(walk.problems or [describe_syntax_error(error, text, file=file)]) from None
    except InvalidYamlError as error:
        raise SpecError([Problem(title="invalid YAML", file=file, detail=str(error))]) from None
    positions = Positions(file, walk.keys, walk.values)
    return ParsedText(
        data=data,
        positions=positions,
        problems=walk.problems,
        unresolved=unresolved,
        missing=substitution.list_missing(),
        notes=tuple(replace(note, file=file) for note in substitution.notes),
    )


def _replace_references(walk: _Walk, substitution: Substitution) -> frozenset[Path]:
    """Replace the references in scalars, and resolve the types of unquoted scalars again.

    Return the scalars that keep a reference without a value; the walk gets its problems.
    """
    unresolved: set[Path] = set()
    resolve = Loader("").resolve
    for paths, node in walk.scalars.values():
        text, is_resolved = substitution.replace(node.value, path=join_path(paths[0]), position=get_position(node))
        if not is_resolved:
            unresolved.update(paths)
        if text != node.value:
            is_plain = node.style is None and node.tag == resolve(yaml.ScalarNode, node.value, (True, False))
            node.value = text
            if is_plain:
                node.tag = resolve(yaml.ScalarNode, text, (True, False))
    walk.problems += [replace(problem, file=walk.file) for problem in substitution.list_problems()]
    return frozenset(unresolved)


class _Walk:
    """Collects the position of every key and value, the scalars with references, and problems such as duplicate keys."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.keys: dict[Path, tuple[int, int]] = {}
        self.values: dict[Path, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.scalars: dict[int, tuple[list[Path], yaml.ScalarNode]] = {}
        """The scalars that may have references, by the identity of their node, with all their paths."""

    def add_value(self, path: Path, node: yaml.Node) -> None:
        """Add a value and everything inside it."""
        self.values[path] = get_position(node)
        if isinstance(node, yaml.ScalarNode):
            self._check_characters(path, node)
            if "$" in node.value:
                self.scalars.setdefault(id(node), ([], node))[0].append(path)
        else:
            self._add_collection(path, node)

    def _check_characters(self, path: Path, node: yaml.ScalarNode) -> None:
        if match := IMPOSSIBLE.search(node.value):
            self._add_problem(f"a text holds {describe_impossible(match[0])}", node, path, NO_HOLDER)

    def _add_collection(self, path: Path, node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            self._add_mapping(path, node)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.add_value((*path, index), item)

    def _add_mapping(self, path: Path, node: yaml.MappingNode) -> None:
        for key, value in node.value:
            if key.tag == _MERGE:
                self.add_value((*path, "<<"), value)
                continue
            if not isinstance(key, yaml.ScalarNode):
                self._add_problem("a key must be text", key, path)
                continue
            inner = (*path, key.value)
            self._check_characters(inner, key)
            if inner in self.keys:
                self._add_problem(f"duplicate key `{key.value}`", key, inner, f"first on line {self.keys[inner][0]}")
                continue
            self.keys[inner] = get_position(key)
            self.add_value(inner, value)

    def _add_problem(self, title: str, node: yaml.Node, path: Path, detail: str | None = None) -> None:
        line, column = get_position(node)
        problem = Problem(title=title, path=join_path(path), file=self.file, line=line, column=column, detail=detail)
        self.problems.append(problem)
        if len(self.problems) >= MAX_PROBLEMS:
            raise _TooManyProblemsError
