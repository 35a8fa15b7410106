"""Fill a manifest template with values and return its objects. Pure.

A value replaces a name in a scalar after the template was parsed. So a value with `:`, `#`, a quote or a line break cannot
change the structure. A scalar without quotes gets the type of its new text, as `replicas: ${NUM_NODES}` needs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import yaml

from kfjob.common_types import JsonObject
from kfjob.compile.template_positions import TextMap
from kfjob.errors import Problem, SpecError
from kfjob.spec.manifest_yaml import PLAIN, STR, ManifestLoader, is_merge, read_key, read_value
from kfjob.spec.variables import UNRESOLVED_REASONS, Resolution, Variables, find_references, is_run_time
from kfjob.spec.yaml_loader import TooLargeError, check_depth
from kfjob.spec.yaml_text import Positions

MAX_NODES = 200_000
"""Values of a template; nested aliases can make a small file fill the memory."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """The objects of a template."""

    objects: tuple[JsonObject, ...]
    positions: tuple[Positions, ...]  # of each object's fields
    unresolved: tuple[str, ...]  # unbraced names without a value, which a program in the pod may replace


def render(text: str, *, values: Mapping[str, str], keep: Collection[str] = (), file: str | None = None) -> Rendered:
    """Replace the names that have a value, and leave the names that the pod replaces.

    Raises:
        SpecError: names have no value, and the error holds all of them with their positions; or the template is not YAML.
    """
    return _Template(text, Variables(values=values, keep=keep), file).render()


def parse(text: str, *, file: str | None = None) -> tuple[JsonObject, ...]:
    """Return the objects of a manifest and replace nothing in it.

    Raises:
        SpecError: the text is not YAML, or a document is not an object.
    """
    return _Template(text, Variables(values={}, keep=_Everything()), file).render().objects


class _Everything(frozenset[str]):
    def __contains__(self, _name: object) -> bool:
        return True


_SHELLS = frozenset(("sh", "ash", "bash", "dash", "ksh", "zsh"))
_PROGRAM_TEXT = frozenset(("annotations", "env", "lifecycle"))
"""Keys of a pod with texts that a program may read; Kubernetes itself replaces no `$NAME`, only `$(NAME)`."""


_Place = Literal["document", "object", "program"]
"""Where a value is: a whole document, metadata or spec of an object, or a text that a program in the pod may read."""


@dataclass(frozen=True)
class _Use:
    """A reference in a scalar."""

    match: re.Match[str]
    in_program: bool  # a program in the pod reads the scalar

    @property
    def name(self) -> str:
        return self.match["braced"] or self.match["bare"]


class _Template:
    """Renders one template. It parses references as words without a meaning in YAML, and replaces them in the scalars."""

    def __init__(self, text: str, variables: Variables, file: str | None) -> None:
        self._text, self._variables, self._file = text, variables, file
        self._references = list(find_references(text))
        stem = "kfjobReference"
        while stem in text:
            stem += "X"
        self._word = re.compile(rf"{stem}([0-9]+)Z")
        self._stem = stem
        self._used: dict[int, _Use] = {}
        self._replaced: dict[int, yaml.Node] = {}  # by id, which is unique only as long as the node exists
        self._ancestors: set[int] = set()
        self._nodes = 0
        self._problems: list[Problem] = []

    def render(self) -> Rendered:
        """Return the objects of all documents."""
        documents = [(self._object(value, line), positions) for value, positions, line in self._documents()]
        self._problems += self._missing()
        if self._problems:
            raise SpecError(sorted(self._problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        names = dict.fromkeys(
            use.name for use in self._used.values() if use.match["bare"] and self._classify(use) is Resolution.FOR_THE_POD
        )
        unresolved = (name for name in names if not is_run_time(name) and name not in self._variables.keep)
        return Rendered(
            objects=tuple(item for item, _ in documents if item),
            positions=tuple(positions for item, positions in documents if item),
            unresolved=tuple(unresolved),
        )

    def _classify(self, use: _Use) -> Resolution:
        return self._variables.classify(use.match, in_program=use.in_program)

    def _documents(self) -> Iterator[tuple[Any, Positions, int]]:
        parts, offset = [], 0
        replaced = []
        for number, reference in enumerate(self._references):
            parts += [self._text[offset : reference.start()], word := f"{self._stem}{number}Z"]
            offset = reference.end()
            replaced.append((reference.start(), offset, len(word)))
        text_map = TextMap(self._text, replaced)
        text = "".join([*parts, self._text[offset:]])
        loader = None
        try:
            check_depth(text)
            loader = ManifestLoader(text)
            while loader.check_node():
                node = loader.get_node()
                line = node.start_mark.line + 1
                self._walk(node, "document")
                value = None if self._problems else read_value(node)
                yield value, text_map.collect(node, self._file) if value is not None else Positions(), line
        except TooLargeError as err:
            raise SpecError([replace(err.problem, file=self._file)]) from None
        except yaml.MarkedYAMLError as err:
            mark = err.problem_mark or err.context_mark
            detail = " ".join(self._restore(part) for part in (err.context, err.problem) if part)
            line = mark.line + 1 if mark else None
            raise SpecError([self._problem("invalid YAML", line, detail=detail)]) from None
        except (yaml.YAMLError, ValueError, RecursionError) as err:
            raise SpecError([self._problem("invalid YAML", None, detail=str(err) or "nested too deeply")]) from None
        finally:
            if loader is not None:
                loader.dispose()

    def _walk(self, node: yaml.Node, place: _Place, *, is_key: bool = False) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES or id(node) in self._ancestors:
            title = "an alias contains itself" if id(node) in self._ancestors else "the aliases expand to too many values"
            raise SpecError([self._problem(title, node.start_mark.line + 1)])
        self._ancestors.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            self._scalar(node, in_program=place != "object", is_key=is_key)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._walk(item, "program" if place == "document" else place)
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node, place)
        self._ancestors.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, place: _Place) -> None:
        keys: set[str] = set()
        for key, value in node.value:
            self._walk(key, place, is_key=True)
            if not is_merge(key):
                name = read_key(key)
                if name in keys:
                    self._problems.append(self._problem(f"duplicate key `{name}`", key.start_mark.line + 1))
                keys.add(name)
            self._walk(value, _place_of_value(key, node, place))

    def _scalar(self, node: yaml.ScalarNode, *, in_program: bool, is_key: bool) -> None:
        if id(node) in self._replaced:  # an alias
            return
        self._replaced[id(node)] = node
        numbers = [int(word) for word in self._word.findall(node.value)]
        if not numbers:
            return
        self._used |= {number: _Use(self._references[number], in_program) for number in numbers}
        node.value = self._variables.replace(self._restore(node.value))
        if node.tag == PLAIN and (is_key or not _has_a_type(node.value)):
            node.tag = STR

    def _restore(self, marked: str) -> str:
        return self._word.sub(lambda word: self._references[int(word[1])][0], marked)

    def _missing(self) -> Iterator[Problem]:
        """Yield one problem for each name, with all its positions outside of comments."""
        references: dict[tuple[str, Resolution], list[re.Match[str]]] = {}
        for _, use in sorted(self._used.items()):
            if (resolution := self._classify(use)) in UNRESOLVED_REASONS:
                references.setdefault((use.name, resolution), []).append(use.match)
        for (name, resolution), matches in references.items():
            first, *more = (self._position(match.start()) for match in matches)
            also = f"also at {', '.join(f'{line}:{column}' for line, column in more)}" if more else None
            hint = f"set it in an env file, with `--var {name}=…`, or export it and use `--env`"
            hint += f"; `--keep {name}` leaves it to the pod"
            yield self._problem(f"`{matches[0][0]}` {UNRESOLVED_REASONS[resolution]}", *first, detail=also, hint=hint)

    def _position(self, offset: int) -> tuple[int, int]:
        return self._text.count("\n", 0, offset) + 1, offset - self._text.rfind("\n", 0, offset)

    def _object(self, value: Any, line: int) -> JsonObject | None:
        if value is None:  # an empty document, or one with problems
            return None
        if problem := find_object_problem(value):
            self._problems.append(self._problem(problem, line))
            return None
        return dict(value)

    def _problem(
        self, title: str, line: int | None, column: int | None = None, *, detail: str | None = None, hint: str | None = None
    ) -> Problem:
        return Problem(title=title, file=self._file, line=line, column=column, detail=detail, hint=hint)


def find_object_problem(value: Any) -> str | None:
    """Return why a value is not a Kubernetes object with a name, or a list of such objects; None if it is one."""
    if not isinstance(value, dict) or not all(isinstance(value.get(key), str) for key in ("apiVersion", "kind")):
        return "this is not a Kubernetes object: it needs `apiVersion` and `kind`"
    if value["kind"].endswith("List") and isinstance(value.get("items"), list):
        return next((problem for item in value["items"] if (problem := find_object_problem(item))), None)
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name") or metadata.get("generateName"), str):
        return f"this {value['kind']} has no `metadata.name`"
    return None


def _place_of_value(key: yaml.Node, mapping: yaml.MappingNode, place: _Place) -> _Place:
    if not isinstance(key, yaml.ScalarNode):
        return place
    if place == "document":
        return "object" if key.value in ("metadata", "spec") else "program"
    is_program = key.value in _PROGRAM_TEXT or (key.value in ("command", "args") and _has_shell(mapping))
    return "program" if is_program else place


def _has_shell(container: yaml.MappingNode) -> bool:
    """Return whether a shell may read the command: one that begins with a shell, or the unknown one of the image."""
    words = next((value.value for key, value in container.value if key.value == "command"), ())
    return not words or any(str(word.value).rpartition("/")[2] in _SHELLS for word in words if isinstance(word, yaml.Node))


_NUMBER = re.compile(r"[-+]?(?:0|[1-9][0-9]*|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)")


def _has_a_type(text: str) -> bool:
    """Return whether an unquoted value of a name is a boolean or a number; an id such as `1e3` is text."""
    return text in ("true", "false") or _NUMBER.fullmatch(text) is not None
