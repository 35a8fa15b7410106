"""Find all problems in the fields of a spec: where one is wrong, replace it and check the others.

A model that has a wrong field is not built, so the rules across its fields do not run. Here the wrong field is renamed to the
field that it means, or gets a value that fits, until the spec can be built. That spec is only for further checks. Problems
that concern a replaced field are left out: one mistake is one problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.trainspec.train_spec import TrainSpec
from kfjob.validation.field_paths import Path, Positions, parse_path
from kfjob.validation.field_suggestions import suggest_field
from kfjob.validation.pydantic_errors import find_path, make_problem
from kfjob.validation.spec_model import list_errors, two_programs_error, validate_fields

Spec = TypeVar("Spec", bound=BaseModel)

_MAX_ROUNDS = 12
"""Attempts to repair a spec, so that one command reports all of its problems."""
_ANY_SHAPE = {
    "vocab_size": 8,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 1 << 40,
}
_TWO_PROGRAMS = two_programs_error().type
_PLACEHOLDERS: Mapping[Path, Any] = MappingProxyType(
    {
        ("name",): "name",
        ("image",): "image",
        ("command",): ["true"],
        ("train", "model"): _ANY_SHAPE,
        ("train", "data"): "data",
        ("train", "max_steps"): 1,
    }
)
"""Values for fields that a spec cannot be without."""


@dataclass
class CheckedFields(Generic[Spec]):
    """The problems of a spec's fields, and the spec without them."""

    model: type[Spec]
    spec: Spec | None = None
    """A spec for further checks; None if the fields are too wrong for one."""
    problems: list[Problem] = field(default_factory=list)
    replaced: set[Path] = field(default_factory=set)
    """Fields that have another value in `spec` than the user wrote."""
    renamed: dict[Path, Path] = field(default_factory=dict)
    """The path in the text of each field that has another name in `spec`."""

    def concerns_replaced(self, problem: Problem) -> bool:
        """Return whether a problem of the built spec may come from a replaced field alone."""
        path = parse_path(problem.path)
        if path in self.renamed or any(path[: len(other)] == other for other in self.replaced):
            return True
        text = f"{problem.title} {problem.detail or ''}"
        words = {word.partition(":")[0].partition("=")[0] for word in re.findall(r"`([^`]*)`", text)}
        return any(str(other[-1]) in words or ".".join(map(str, other)) in words for other in self.replaced if other)

    def remove_overrides(self, problems: Iterable[Problem]) -> CheckedFields[Spec]:
        """Return the fields without the overrides that problems are about: only the kind of the job can check these."""
        paths = [path for problem in problems if (path := parse_path(problem.path))[:1] == ("overrides",) and len(path) > 1]
        if self.spec is None or not paths:
            return self
        fields = {"overrides": deepcopy(getattr(self.spec, "overrides", {}))}
        checked = replace(self, replaced=set(self.replaced), renamed=dict(self.renamed))
        for path in paths:
            _replace(fields, path, checked)
        return replace(checked, spec=self.spec.model_copy(update=fields))

    def find_origin(self, path: Path) -> Path:
        """Return the path in the text of a field of the built spec."""
        for new, old in self.renamed.items():
            if path[: len(new)] == new:
                return (*old, *path[len(new) :])
        return path


def check_fields(
    model: type[Spec], data: JsonMapping, positions: Positions, *, unresolved: Iterable[Path] = ()
) -> CheckedFields[Spec]:
    """Validate the fields of a spec. The scalars at `unresolved` have problems of their own already."""
    checked = CheckedFields(model)
    try:
        if not (unresolved := tuple(unresolved)) and not _has_empty_train(data):
            checked.spec = validate_fields(model, data)
            return checked
    except ValidationError:
        pass  # the loop below reports it
    fields: JsonObject = deepcopy(dict(data))
    for path in unresolved:
        _replace(fields, path, checked)
    _fill_empty_train(fields, checked, positions)
    _report_two_programs(fields, checked, positions)
    for _ in range(_MAX_ROUNDS):
        try:
            checked.spec = validate_fields(model, fields)
            break
        except ValidationError as error:
            details = list_errors(error)
        unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
        for detail in unknown or details:
            _report(detail, fields, checked, positions)
        for detail in unknown or details:
            _repair(fields, detail, checked)
    return checked


def _has_empty_train(fields: JsonMapping) -> bool:
    return fields.get("train", "") is None and not fields.get("command")


def _fill_empty_train(fields: JsonObject, checked: CheckedFields[Any], positions: Positions) -> None:
    """Report a `train:` without fields, and move the fields into it that are not indented."""
    if not _has_empty_train(fields):
        return
    problem = Problem(title="`train` is empty", path="train", hint="indent the lines below it, which are its fields")
    checked.problems.append(positions.locate(problem, ("train",), at_key=True))
    names = [name for name in fields if name in TrainSpec.model_fields and name not in checked.model.model_fields]
    if not names:
        _replace(fields, ("command",), checked)
        del fields["train"]
        return
    fields["train"] = {name: fields.pop(name) for name in names}
    checked.renamed.update({("train", name): (name,) for name in names})


def _report_two_programs(fields: JsonObject, checked: CheckedFields[Any], positions: Positions) -> None:
    """Report a job with `command` and `train`, which the loop would only see once `train` has no other problem."""
    if not fields.get("command") or fields.get("train") is None:
        return
    error = two_programs_error()
    detail = ErrorDetails(type=error.type, loc=("train",), msg=error.message(), input=None, ctx=error.context or {})
    checked.problems.append(positions.locate(make_problem(detail, checked.model), ("train",), at_key=True))


def _is_program_argument(fields: JsonMapping, path: Path, model: type[BaseModel]) -> bool:
    """Return whether an unknown field is one of kfjob's trainer, in a job that runs another program."""
    if len(path) != 1 or "train" in fields or not fields.get("command"):
        return False
    return "`train." in suggest_field(path, model).hint


def _report(detail: ErrorDetails, fields: JsonMapping, checked: CheckedFields[Any], positions: Positions) -> None:
    if detail["type"] == _TWO_PROGRAMS:
        return  # it was reported at the beginning
    path = find_path(detail)
    origin = checked.find_origin(path)
    shown = ErrorDetails(**{**detail, "loc": origin}) if origin != path else detail
    problem = make_problem(shown, checked.model)
    is_unknown = detail["type"] == "extra_forbidden"
    if is_unknown and _is_program_argument(fields, path, checked.model):
        hint = "it is an argument of the program: add it to `command`, as the program spells it"
        problem = replace(problem, hint=hint)
    if is_unknown or not checked.concerns_replaced(make_problem(detail, checked.model)):
        checked.problems.append(positions.locate(problem, origin, at_key=is_unknown))


def _repair(fields: JsonObject, detail: ErrorDetails, checked: CheckedFields[Any]) -> None:
    """Replace or rename the field that an error is about."""
    path = find_path(detail)
    if detail["type"] == "nothing_to_run":
        path = ("command",)
    if detail["type"] == _TWO_PROGRAMS:
        checked.replaced.add(("command",))
        _remove(fields, ("command",))
        return
    if detail["type"] == "extra_forbidden":
        is_argument = _is_program_argument(fields, path, checked.model)
        value = _remove(fields, path)
        target = None if is_argument else suggest_field(path, checked.model, value=value).field
        if target and not _exists(fields, target) and _put(fields, target, value):
            checked.renamed[target] = checked.find_origin(path)
        return
    while path in checked.replaced:  # another value did not help
        path = path[:-1]
    _replace(fields, path, checked)


def _replace(fields: JsonObject, path: Path, checked: CheckedFields[Any]) -> None:
    """Give a field a value that fits, or remove it; an item of a list is removed with its list."""
    while path and not (path in _PLACEHOLDERS or (isinstance(path[-1], str) and _exists(fields, path))):
        path = path[:-1]
    if not path:
        return
    checked.replaced.add(path)
    checked.renamed.pop(path, None)
    if path not in _PLACEHOLDERS or not _put(fields, path, deepcopy(_PLACEHOLDERS[path])):
        _remove(fields, path)
    if path == ("train",) and not fields.get("command"):
        fields["command"] = _PLACEHOLDERS["command",]


def _find_parent(fields: JsonObject, path: Path) -> Any:
    value: Any = fields
    for part in path[:-1]:
        try:
            value = value[part]
        except (LookupError, TypeError):
            return None
    return value


def _exists(fields: JsonObject, path: Path) -> bool:
    parent = _find_parent(fields, path)
    return isinstance(parent, dict) and path[-1] in parent


def _remove(fields: JsonObject, path: Path) -> Any:
    parent = _find_parent(fields, path)
    return parent.pop(path[-1], None) if isinstance(parent, dict) else None


def _put(fields: JsonObject, path: Path, value: Any) -> bool:
    """Set a value, and return whether that was possible; a missing section is added, but never `train`."""
    if len(path) > 1 and path[0] != "train":
        fields.setdefault(str(path[0]), {})
    parent = _find_parent(fields, path)
    if not isinstance(parent, dict):
        return False
    parent[path[-1]] = value
    return True
