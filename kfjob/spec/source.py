"""Text -> JobSpec, with the line and column of every field, and every problem at once.

Pure: the text is handed in, and the name of its file is only used in messages.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kfjob.errors import Problem, SpecError
from kfjob.spec.job import JobSpec

Path = tuple[str | int, ...]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where PyYAML was built with it: ten times the speed


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
        return [p if p.line is not None else self.locate(p, _parse_path(p.path)) for p in problems]


@dataclass(frozen=True)
class Loaded:
    """A spec and where its fields stand."""

    spec: JobSpec
    positions: Positions


def load(text: str, *, file: str | None = None, assignments: Sequence[str] = ()) -> Loaded:
    """Read one YAML (or JSON) document; `assignments` (`nodes=4`, `volumes.0.pvc=data`) are put over what it says.

    Raises:
        SpecError: with every problem that was found, each with its place in the text.
    """
    data, positions, problems = _parse(text, file)
    if isinstance(data, dict):
        positions = replace(positions, assigned=_assign(data, assignments, problems))
    if not isinstance(data, dict):
        title = f"a job spec is a mapping, this is {'empty' if data is None else f'a {_kind(data)}'}"
        raise SpecError([Problem(title=title, file=file, line=1, column=1, hint="begin with `name: …`")])
    spec = None
    try:
        spec = JobSpec.model_validate(data)
    except ValidationError as err:
        problems += [_problem(detail, positions) for detail in err.errors(include_url=False)]
    if spec is None or problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    return Loaded(spec, positions)


def problems_of(error: ValidationError) -> list[Problem]:
    """The problems of a spec that was made in Python, where fields have no place in a file."""
    return [_problem(detail, Positions()) for detail in error.errors(include_url=False)]


def parse(text: str, *, file: str | None = None) -> tuple[Any, Positions]:
    """YAML -> plain data and positions.

    Raises:
        SpecError: for a syntax error, or a key that stands twice.
    """
    data, positions, problems = _parse(text, file)
    if problems:
        raise SpecError(problems)
    return data, positions


def _parse(text: str, file: str | None) -> tuple[Any, Positions, list[Problem]]:
    loader = None
    walk = _Walk()
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            walk.value((), node)
        data = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as err:
        raise SpecError([replace(p, file=file) for p in walk.problems] or [_syntax_problem(err, file)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise SpecError([Problem(title="this is not valid YAML", file=file, detail=str(err) or "nested too deeply")]) from None
    finally:
        if loader is not None:
            loader.dispose()
    return data, Positions(file, walk.keys, walk.values), [replace(problem, file=file) for problem in walk.problems]


def _syntax_problem(err: yaml.MarkedYAMLError, file: str | None) -> Problem:
    mark = err.problem_mark or err.context_mark
    detail = " ".join(part for part in (err.context, err.problem) if part)
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return Problem(title="this is not valid YAML", file=file, line=line, column=column, detail=detail)


def _assign(data: dict[str, Any], assignments: Sequence[str], problems: list[Problem]) -> dict[Path, str]:
    """Change `data` as the assignments say; where each value came from."""
    made: dict[Path, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        path, where = _parse_path(name), f"--set {assignment}"
        try:
            value, _ = parse(text)
        except SpecError:
            value = text  # as in a shell: what is no YAML is a word
        if not equals or not name:
            problems.append(Problem(title="an assignment is `field=value`", file=where, hint="for example `--set nodes=4`"))
        elif not _put(data, path, value):
            problems.append(Problem(title=f"there is no `{name}` to set", path=name, file=where))
        else:
            made[path] = where
    return made


def _put(data: Any, path: Path, value: Any) -> bool:
    """Put a value at a path; mappings on the way are made, a list may grow by one. False if there is no such place."""
    *way, last = path
    for part in way:
        if isinstance(data, dict):
            data = data.setdefault(str(part), {})
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return False
    if isinstance(data, dict):
        data[str(last)] = value
    elif isinstance(data, list) and isinstance(last, int) and last <= len(data):
        data[last : last + 1] = [value]
    else:
        return False
    return True


class _Walk:
    """Collects the place of every key and value, and the keys that stand twice."""

    def __init__(self) -> None:
        self.keys: dict[Path, tuple[int, int]] = {}
        self.values: dict[Path, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self._open: set[int] = set()

    def value(self, path: Path, node: yaml.Node) -> None:
        """Note the place of a value and go into it."""
        self.values[path] = _place(node)
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
            if key.tag == "tag:yaml.org,2002:merge":
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
        self.problems.append(Problem(title=title, path=_join(path), line=line, column=column, detail=detail))


def _place(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _join(path: Path) -> str:
    return ".".join(str(part) for part in path)


def _parse_path(path: str) -> Path:
    return tuple(int(part) if part.isdecimal() else part for part in path.split(".")) if path else ()


def _kind(value: object) -> str:
    names = {
        bool: "yes-or-no value",
        int: "number",
        float: "number",
        str: "text",
        list: "list",
        dict: "mapping",
        type(None): "nothing",
    }
    return names.get(type(value), type(value).__name__)


_UNION_TAGS = {"str", "ModelShape", "env:text", "env:source"}  # pydantic names the branch of a union, which stands in no file


def _problem(detail: ErrorDetails, positions: Positions) -> Problem:
    path = tuple(part for part in detail["loc"] if part not in _UNION_TAGS)
    context = detail.get("ctx", {})
    if "path" in context:
        path = _parse_path(context["path"])
    name = _join(path)
    if detail["type"] == "extra_forbidden":
        known = sorted(_fields_at(JobSpec, path[:-1]))
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(known)}"
        return positions.locate(Problem(title=f"unknown field `{path[-1]}`", path=name, hint=hint), path, at_key=True)
    if detail["type"] == "missing":
        return positions.locate(Problem(title=f"`{name}` is missing", path=name), path)
    title = _title(detail, name)
    return positions.locate(Problem(title=title, path=name, detail=context.get("detail"), hint=context.get("hint")), path)


_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_LIMITS = {
    "greater_than_equal": "at least",
    "greater_than": "more than",
    "less_than_equal": "at most",
    "less_than": "less than",
}


def _title(detail: ErrorDetails, name: str) -> str:
    kind, given, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = f"`{given}`" if isinstance(given, str | int | float) else "empty" if given is None else f"a {_kind(given)}"
    if kind in _WANTED:
        return f"`{name}` must be {_WANTED[kind]}, not {shown}"
    if kind in _LIMITS:
        return f"`{name}` must be {_LIMITS[kind]} {next(iter(context.values()))}, not {shown}"
    if kind == "literal_error":
        return f"`{name}` must be one of {context['expected'].replace(chr(39), '`')}, not {shown}"
    return detail["msg"].removeprefix("Value error, ")


def _fields_at(model: type[BaseModel], path: Path) -> set[str]:
    """The names of the fields that a mapping at `path` may have."""
    current: type[BaseModel] | None = model
    for part in path:
        if isinstance(part, int) or current is None:
            continue
        info = current.model_fields.get(part)
        current = _model_in(info) if info else None
    return set(current.model_fields) if current else set()


def _model_in(info: FieldInfo) -> type[BaseModel] | None:
    candidates: list[Any] = [info.annotation]
    while candidates:
        candidate = candidates.pop()
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
        candidates += get_args(candidate)
    return None
