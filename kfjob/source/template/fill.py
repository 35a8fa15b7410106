"""Fill a manifest template with values and return its objects. Pure.

A value replaces a name in a scalar after the template was parsed. So a value with `:`, `#`, a quote or a line break cannot
change the structure. A scalar without quotes gets the type that kubectl gives its new text, as `replicas: ${NUM_NODES}` needs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml
from msgspec import Struct

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.objects.api_objects import is_list
from kfjob.shell.variables import RANK_NAMES, UNRESOLVED_REASONS, Reader, Resolution, Variables, write_value_hint
from kfjob.source.foreign_formats import find_language_problem
from kfjob.source.manifest_yaml import ManifestLoader, find_repeated_keys, is_merge, list_merged, read_value
from kfjob.source.template.marked_text import MarkedText
from kfjob.source.template.notices import Notices, Use, describe_place, suggest
from kfjob.source.template.places import DOCUMENT, Place, Pods
from kfjob.source.template.positions import walk
from kfjob.source.template.scalars import Scalars
from kfjob.source.yaml_loader import InvalidYamlError, TooLargeError, compose_documents, join_surrogates
from kfjob.validation.field_paths import Path, Positions

_HAS_RANKS = re.compile(r"""\bMaster['"]?[ \t]*:|\bkind['"]?[ \t]*:[ \t]*['"]?HyperPodPyTorchJob\b""")
"""A job whose operator sets `RANK` and the other names of `RANK_NAMES` in the pods: one with a Master."""


class Rendered(Struct, frozen=True, kw_only=True):
    """The objects of a template, and notices about the references that stay in them for the pod."""

    objects: tuple[JsonObject, ...]
    positions: tuple[Positions, ...]  # of each object's fields
    notices: tuple[str, ...]


def render(
    text: str,
    *,
    values: Mapping[str, str],
    keep: Collection[str] = (),
    only: Collection[str] | None = None,
    exported: Mapping[str, str] = MappingProxyType({}),
    file: str | None = None,
) -> Rendered:
    """Replace the names that have a value, and leave the names that the pod replaces; with `only`, replace no other names.

    `exported` are values of names that have another value in a pod: they replace only what nothing in the pods can replace.

    Raises:
        SpecError: names have no value, and the error holds all of them with their positions; or the template is not YAML.
    """
    variables = Variables(
        values={**exported, **values},
        keep=keep,
        only=only,
        exported=exported.keys() - values.keys(),
        unset=() if _HAS_RANKS.search(text) or "containers" not in text else RANK_NAMES,
    )
    return _Template(text, variables, file).render()


def parse(text: str, *, file: str | None = None) -> Rendered:
    """Return the objects of a manifest and replace nothing in it.

    Raises:
        SpecError: the text is not YAML, or a document is not an object.
    """
    return _Template(text, Variables(values={}, keep=_Everything()), file, is_literal=True).render()


class _Everything(frozenset[str]):
    def __contains__(self, _name: object) -> bool:
        return True


class _Template:
    """Renders one template. It parses references as words without a meaning in YAML, and replaces them in the scalars."""

    def __init__(self, text: str, variables: Variables, file: str | None, *, is_literal: bool = False) -> None:
        self._source, self._variables, self._file, self._is_literal = (
            MarkedText(join_surrogates(text)),
            variables,
            file,
            is_literal,
        )
        self._scalars = Scalars(self._source, variables)
        self._documents: list[tuple[Any, yaml.Node]] = []
        self._pods = Pods((), self._scalars.render_name)
        self._nodes: dict[int, yaml.Node] = {}  # by id, which is unique only as long as the node exists
        self._problems: list[Problem] = []

    def render(self) -> Rendered:
        """Return the objects of all documents."""
        documents = [(self._check_object(*document), document[1]) for document in self._read_documents()]
        self._problems += [*self._list_empty(), *self._list_unresolved()]
        if self._problems:
            raise SpecError(sorted(self._problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        return Rendered(
            objects=tuple(item for item, _ in documents if item),
            positions=tuple(positions for item, positions in documents if item),
            notices=tuple(self._list_notices()),
        )

    def _read_documents(self) -> list[tuple[Any, Positions, int]]:
        """Return the value, the positions and the line of each document."""
        try:
            nodes = [self._separate(node) for node in compose_documents(self._source.marked, ManifestLoader)]
            self._pods = Pods(nodes, self._scalars.render_name)
            return [self._read_document(node) for node in nodes]
        except TooLargeError as err:
            raise SpecError([self._problem(str(err), err.problem.line, err.problem.column)]) from None
        except yaml.MarkedYAMLError as err:
            raise SpecError([self._describe_syntax_error(err)]) from None
        except InvalidYamlError as err:
            raise SpecError([self._problem("invalid YAML", None, detail=str(err))]) from None

    def _read_document(self, node: yaml.Node) -> tuple[Any, Positions, int]:
        line = node.start_mark.line + 1
        self._walk(node, DOCUMENT)
        value = None if self._problems else read_value(node)
        self._documents.append((value, node))
        if value is None:
            return value, Positions(), line
        return value, self._source.map.collect(node, self._file, self._scalars.first_names), line

    def _describe_syntax_error(self, error: yaml.MarkedYAMLError) -> Problem:
        lines = [mark.line + 1 for mark in (error.context_mark, error.problem_mark) if mark]
        if problem := find_language_problem(self._source.text, lines, file=self._file):
            return problem
        mark = error.problem_mark or error.context_mark
        detail = " ".join(self._source.restore(part) for part in (error.context, error.problem) if part)
        return self._problem("invalid YAML", mark.line + 1 if mark else None, detail=detail)

    def _separate(self, node: yaml.Node) -> yaml.Node:
        """Return a tree in which an alias is a copy, so that each place has its own text."""
        if id(node) in self._nodes:
            node = copy(node)
        self._nodes[id(node)] = node
        if isinstance(node, yaml.SequenceNode):
            node.value = [self._separate(item) for item in node.value]
        elif isinstance(node, yaml.MappingNode):
            node.value = [tuple(self._separate(part) for part in pair) for pair in node.value]
        return node

    def _walk(self, node: yaml.Node, place: Place) -> None:
        if isinstance(node, yaml.ScalarNode):
            if self._is_literal:
                node.value = self._source.restore(node.value)
            else:
                self._scalars.render(node, place)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._walk(item, place.enter_flow(node).enter_item(index))
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node, place.enter_flow(node), node)

    def _mapping(self, node: yaml.MappingNode, place: Place, owner: yaml.MappingNode) -> None:
        """Walk through a mapping that is merged into its owner, or that is the owner itself."""
        for key, value in node.value:
            self._walk(key, place)
            if not is_merge(key):
                self._walk(value, place.enter(key, owner, value, self._pods))
                continue
            for merged in list_merged(value):
                if isinstance(merged, yaml.MappingNode):
                    self._mapping(merged, place, owner)
        for name, key in find_repeated_keys(node):
            self._problems.append(self._problem(f"duplicate key `{name}`", key.start_mark.line + 1))

    def _list_empty(self) -> Iterator[Problem]:
        """Yield a problem for each field that only Kubernetes reads and that is empty."""
        for use, field in self._scalars.empty:
            hint = f"set it in an env file or with `--var {use.name}=…`"
            title = f"`{use.text}` has an empty value, and `{field}` needs one"
            yield self._problem(title, *self._source.locate(use.offset), hint=hint)

    def _list_unresolved(self) -> Iterator[Problem]:
        """Yield one problem for each name, with all its positions outside of comments."""
        unresolved: dict[tuple[str, Resolution], list[Use]] = {}
        for use in sorted(self._scalars.uses, key=lambda use: use.offset):
            if use.resolution in UNRESOLVED_REASONS:
                unresolved.setdefault((use.name, use.resolution), []).append(use)
        for (name, resolution), uses in unresolved.items():
            first, *more = dict.fromkeys(self._source.locate(use.offset) for use in uses)
            also = f"also at {', '.join(f'{line}:{column}' for line, column in more)}" if more else None
            similar = suggest(name, self._variables.values) if resolution is Resolution.MISSING else ""
            title = f"`{uses[0].text}` {UNRESOLVED_REASONS[resolution]}{similar}"
            hint = write_value_hint(name, may_be_empty=False)
            if self._variables.only is not None and name not in self._variables.only:
                title, hint = f"`{uses[0].text}` stays, and no program reads it", f"add `{name}` to `--only`"
            elif any(use.reader is not Reader.KUBERNETES for use in uses):
                hint = f"{write_value_hint(name, may_be_empty=True)}; `--keep {name}` leaves it to the pod"
            yield self._problem(title, *first, detail=also, hint=hint)

    def _list_notices(self) -> Iterator[str]:
        used = {use.scalar for use in self._scalars.uses} | {escape.scalar for escape in self._scalars.escapes}
        places = {
            id(scalar): describe_place(value, path)
            for value, node in self._documents
            for path, _, scalar in walk(node)
            if id(scalar) in used
        }
        notices = Notices(
            self._variables, self._file, locate=self._source.locate, describe=lambda scalar: places.get(scalar, "")
        )
        return notices.write(self._scalars.uses, self._scalars.escapes)

    def _check_object(self, value: Any, positions: Positions, line: int) -> JsonObject | None:
        """Return the object of a document; None for an empty document, and for one with problems."""
        if value is None:
            return None
        if unusable := find_object_problem(value):
            problem = self._problem(unusable.title, line)
            self._problems.append(positions.locate(problem, unusable.path) if unusable.path else problem)
            return None
        return dict(value)

    def _problem(
        self, title: str, line: int | None, column: int | None = None, *, detail: str | None = None, hint: str | None = None
    ) -> Problem:
        return Problem(title=title, file=self._file, line=line, column=column, detail=detail, hint=hint)


class ObjectProblem(NamedTuple):
    """Why a value is not a Kubernetes object, and the path of the fault in it."""

    path: Path
    title: str


def find_object_problem(value: Any, path: Path = ()) -> ObjectProblem | None:
    """Return why a value is not a Kubernetes object with a name, or a list of such objects; None if it is one.

    The parts that all kinds of objects have are checked: `metadata` with its texts and mappings of texts, and `spec`.
    """
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("apiVersion", "kind")):
        return ObjectProblem(path, "this is not a Kubernetes object: it needs `apiVersion` and `kind`")
    if is_list(value):
        items = enumerate(value["items"])
        return next((problem for index, item in items if (problem := find_object_problem(item, (*path, "items", index)))), None)
    return next(_find_shape_problems(value, path), None)


def _find_shape_problems(value: JsonObject, path: Path) -> Iterator[ObjectProblem]:
    metadata, kind = value.get("metadata"), value["kind"]
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        yield ObjectProblem(path, f"this {kind} has no `metadata.name`")
        return
    for field in ("name", "generateName", "namespace"):
        if not isinstance(metadata.get(field), str | None):
            yield ObjectProblem((*path, "metadata", field), f"`metadata.{field}` of this {kind} must be text")
    for field in ("labels", "annotations"):
        if not isinstance(metadata.get(field), dict | None):
            yield ObjectProblem((*path, "metadata", field), f"`metadata.{field}` of this {kind} must map names to text")
    if not isinstance(value.get("spec"), dict | None):
        yield ObjectProblem((*path, "spec"), f"`spec` of this {kind} must be a mapping")
