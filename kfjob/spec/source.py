"""Load a job spec from text, with the line and column of every field, and report every problem at once.

Pure: the caller provides the text; the name of its file appears in messages only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kfjob.common_types import JsonObject
from kfjob.errors import Problem, SpecError
from kfjob.spec.assign import apply_assignments
from kfjob.spec.base import list_errors, validate_fields
from kfjob.spec.job import JobSpec
from kfjob.spec.migrate import migrate
from kfjob.spec.paths import Path, join_path, parse_path
from kfjob.spec.problems import describe_kind, find_path, make_problem
from kfjob.spec.script_translation import Translation, translate_arguments
from kfjob.spec.yaml_text import Positions, parse_yaml, parse_yaml_with_problems

__all__ = ["LoadedSpec", "Positions", "load_spec", "parse_yaml"]


@dataclass(frozen=True)
class LoadedSpec:
    """A spec and the positions of its fields."""

    spec: JobSpec
    positions: Positions
    warnings: tuple[Problem, ...] = ()
    """Fields that are accepted but have no effect."""


def load_spec(
    text: str, *, file: str | None = None, assignments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> LoadedSpec:
    """Load one YAML (or JSON) document.

    `${NAME}` and `${NAME:-default}` are replaced by `variables`; `$${NAME}` stands for the text `${NAME}`. Then `assignments`
    (`nodes=4`, `volumes.0.pvc=data`) override fields of the text.

    Raises:
        SpecError: the spec has problems; it holds all of them with their positions in the text.
    """
    data, positions, problems = parse_yaml_with_problems(text, file=file, variables=variables or {})
    if not isinstance(data, dict):
        title = f"a job spec must be a mapping, this is {'empty' if data is None else f'a {describe_kind(data)}'}"
        raise SpecError([Problem(title=title, file=file, line=1, column=1, hint="begin with `name: …`")])
    assigned, assignment_problems = apply_assignments(data, assignments)
    problems += assignment_problems
    positions = replace(positions, assigned=assigned)
    data = _migrate(data, positions)
    warnings: list[Problem] = []
    if isinstance(data.get("train"), dict):
        translation = translate_arguments(data["train"])
        data = {**data, "train": translation.values}
        problems += _locate_in_train(translation.problems, positions)
        warnings = _locate_in_train(translation.warnings, positions)
        positions = _add_translated_positions(positions, translation)
    spec = None
    try:
        spec = validate_fields(JobSpec, data)
    except ValidationError as error:
        problems += [_locate(detail, positions) for detail in list_errors(error)]
    if spec is None or problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    return LoadedSpec(spec, positions, tuple(warnings))


def _migrate(data: JsonObject, positions: Positions) -> JsonObject:
    try:
        return migrate(data)
    except SpecError as error:
        raise SpecError(positions.locate_all(error.problems)) from None


def _locate(detail: ErrorDetails, positions: Positions) -> Problem:
    """Return the problem for an error, with its position in the text."""
    at_key = detail["type"] == "extra_forbidden"
    return positions.locate(make_problem(detail, JobSpec), find_path(detail), at_key=at_key)


def _locate_in_train(problems: Sequence[Problem], positions: Positions) -> list[Problem]:
    """Return problems of the `train` section, whose paths begin inside it, with their positions."""
    return [positions.locate(replace(p, path=join_path(("train", p.path))), ("train", p.path)) for p in problems]


def _add_translated_positions(positions: Positions, translation: Translation) -> Positions:
    """Give each field of `train` the position of the argument that it was translated from."""
    origins = {("train", *parse_path(field)): ("train", argument) for field, argument in translation.origins.items()}

    def add_fields(table: Mapping[Path, Any]) -> dict[Path, Any]:
        return {**table, **{field: table[argument] for field, argument in origins.items() if argument in table}}

    keys, values, assigned = map(add_fields, (positions.keys, positions.values, positions.assigned))
    return replace(positions, keys=keys, values=values, assigned=assigned)
