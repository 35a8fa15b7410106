"""A manifest template and values -> the objects that it describes. Pure.

A value is put into a scalar after the template was parsed, so it cannot change the structure around it, whatever it holds: a
`:`, a `#`, a quote, a new line. A scalar without quotes is typed by what it then says, as `replicas: ${NUM_NODES}` wants.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from kfjob.common_types import JsonObject
from kfjob.errors import Problem, SpecError
from kfjob.spec.variables import REFERENCE, Fate, Variables, is_run_time
from kfjob.spec.yaml_loader import Loader

MOST_NODES = 200_000
"""Aliases that hold aliases can make a small file into one that fills the memory."""


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """What a template came to."""

    objects: tuple[JsonObject, ...]
    unresolved: tuple[str, ...]  # unbraced names without a value, which mean nothing inside a pod by themselves


def render(text: str, *, values: Mapping[str, str], keep: Collection[str] = (), file: str | None = None) -> Rendered:
    """Replace what has a value, and leave what is the pod's.

    Raises:
        SpecError: with every name that has no value and every place where it stands; or the template is not YAML.
    """
    return _Template(text, Variables(values=values, keep=keep), file).render()


def parse(text: str, *, file: str | None = None) -> tuple[JsonObject, ...]:
    """The objects of a manifest as it stands, whatever looks like a variable in it.

    Raises:
        SpecError: it is not YAML, or not objects.
    """
    return _Template(text, Variables(values={}, keep=_Everything()), file).render().objects


class _Everything(frozenset[str]):
    def __contains__(self, _name: object) -> bool:
        return True


class _Loader(Loader):  # type: ignore[misc]
    """YAML as kubectl reads it: no dates, no numbers to the base of 60."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own way


_NULL, _BOOL = re.compile(r"~|null|Null|NULL|"), re.compile(r"(?:true|false|yes|no|on|off)", re.IGNORECASE)
_INT, _FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
for _kind, _pattern, _first in (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfFyYnNoO")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", re.compile("<<"), ["<"]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_kind}", re.compile(rf"^(?:{_pattern.pattern})$", _pattern.flags), _first
    )


class _Template:
    """One template, on its way. References are parsed as words that mean nothing to YAML, and looked up when they are met."""

    def __init__(self, text: str, variables: Variables, file: str | None) -> None:
        self._text, self._variables, self._file = text, variables, file
        self._references = list(REFERENCE.finditer(text))
        stem = "kfjobReference"
        while stem in text:
            stem += "X"
        self._word = re.compile(rf"{stem}([0-9]+)Z")
        self._stem = stem
        self._met: dict[int, re.Match[str]] = {}
        self._done: set[int] = set()
        self._open: set[int] = set()
        self._nodes = 0
        self._problems: list[Problem] = []

    def render(self) -> Rendered:
        """All documents."""
        objects = [self._object(value, line) for value, line in self._documents()]
        self._problems += self._missing()
        if self._problems:
            raise SpecError(sorted(self._problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        names = dict.fromkeys(r["bare"] for r in self._met.values() if self._variables.fate(r) is Fate.LEFT and r["bare"])
        unresolved = (name for name in names if not is_run_time(name) and name not in self._variables.keep)
        return Rendered(objects=tuple(one for one in objects if one), unresolved=tuple(unresolved))

    def _documents(self) -> Iterator[tuple[Any, int]]:
        numbers = iter(range(len(self._references)))
        loader = _Loader(REFERENCE.sub(lambda _: f"{self._stem}{next(numbers)}Z", self._text))
        try:
            while loader.check_node():
                node = loader.get_node()
                line = node.start_mark.line + 1
                self._walk(node)
                yield (None if self._problems else loader.construct_document(node)), line
        except yaml.MarkedYAMLError as err:
            mark = err.problem_mark or err.context_mark
            detail = " ".join(self._restored(part) for part in (err.context, err.problem) if part)
            line = mark.line + 1 if mark else None
            raise SpecError([self._problem("this is not valid YAML", line, detail=detail)]) from None
        except (yaml.YAMLError, ValueError, RecursionError) as err:
            raise SpecError([self._problem("this is not valid YAML", None, detail=str(err) or "nested too deeply")]) from None
        finally:
            loader.dispose()

    def _walk(self, node: yaml.Node) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES or id(node) in self._open:
            why = "an alias may not hold itself" if id(node) in self._open else "the aliases of this file make it too large"
            raise SpecError([self._problem(why, node.start_mark.line + 1)])
        self._open.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            self._scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._walk(item)
        elif isinstance(node, yaml.MappingNode):
            self._mapping(node)
        self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, value in node.value:
            self._walk(key)
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    self._problems.append(self._problem(f"`{key.value}` stands twice", key.start_mark.line + 1))
                seen.add(key.value)
                if key.tag != "tag:yaml.org,2002:merge":
                    key.tag = "tag:yaml.org,2002:str"  # the keys of an object are text
            self._walk(value)

    def _scalar(self, node: yaml.ScalarNode) -> None:
        if id(node) in self._done:  # an alias
            return
        self._done.add(id(node))
        numbers = [int(word) for word in self._word.findall(node.value)]
        if not numbers:
            return
        self._met |= {number: self._references[number] for number in numbers}
        node.value = self._variables.replace(self._restored(node.value))
        if not node.style and node.tag == "tag:yaml.org,2002:str":
            node.tag = f"tag:yaml.org,2002:{_type_of(node.value)}"

    def _restored(self, marked: str) -> str:
        return self._word.sub(lambda word: self._references[int(word[1])][0], marked)

    def _missing(self) -> Iterator[Problem]:
        """One problem a name, with every place where it stands outside of comments."""
        whys = {
            Fate.MISSING: "has no value: nobody gave it",
            Fate.EMPTY: "has no value: it was given, but is empty",
            Fate.NESTED: "has a default with another name in braces, which cannot be replaced",
        }
        places: dict[tuple[str, Fate], list[re.Match[str]]] = {}
        for _, found in sorted(self._met.items()):
            if (fate := self._variables.fate(found)) in whys:
                places.setdefault((found["braced"], fate), []).append(found)
        for (name, fate), found_at in places.items():
            first, *more = (self._place(found.start()) for found in found_at)
            also = f"also at {', '.join(f'{line}:{column}' for line, column in more)}" if more else None
            hint = f"give it in the env file or with `--var {name}=…`; `--keep {name}` leaves it for the pod"
            yield self._problem(f"`{found_at[0][0]}` {whys[fate]}", *first, detail=also, hint=hint)

    def _place(self, offset: int) -> tuple[int, int]:
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
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return f"this {value['kind']} has no `metadata.name`"
    return None


def _type_of(text: str) -> str:
    """What a value is where the template has no quotes around it: a number, a yes or no, else text."""
    if text in ("true", "false"):
        return "bool"
    return "int" if _INT.fullmatch(text) else "float" if _FLOAT.fullmatch(text) else "str"
