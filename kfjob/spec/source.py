"""Text -> JobSpec, with the line and column of every field, and every problem at once.

Pure: the text is handed in, and the name of its file is only used in messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kfjob.errors import Problem, SpecError
from kfjob.spec.assign import apply_assignments
from kfjob.spec.base import validate_fields
from kfjob.spec.job import JobSpec
from kfjob.spec.migrate import migrate
from kfjob.spec.paths import Path, parse_path
from kfjob.spec.problems import describe_kind, find_path, make_problem
from kfjob.spec.script_arguments import translate_arguments
from kfjob.spec.yaml_text import Positions, parse_yaml, parse_yaml_with_problems

__all__ = ["LoadedSpec", "Positions", "load_spec", "parse_yaml"]


@dataclass(frozen=True)
class LoadedSpec:
    """A spec and where its fields stand."""

    spec: JobSpec
    positions: Positions
    notes: tuple[Problem, ...] = ()
    """What was accepted and changes nothing."""


def load_spec(
    text: str, *, file: str | None = None, assignments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> LoadedSpec:
    """Read one YAML (or JSON) document.

    `${NAME}` and `${NAME:-default}` stand for what `variables` hold, `$${NAME}` for itself; then `assignments` (`nodes=4`,
    `volumes.0.pvc=data`) are put over what the text says.

    Raises:
        SpecError: with every problem that was found, each with its place in the text.
    """
    data, positions, problems = parse_yaml_with_problems(text, file=file, variables=variables or {})
    if not isinstance(data, dict):
        title = f"a job spec is a mapping, this is {'empty' if data is None else f'a {describe_kind(data)}'}"
        raise SpecError([Problem(title=title, file=file, line=1, column=1, hint="begin with `name: …`")])
    positions = replace(positions, assigned=apply_assignments(data, assignments, problems))
    try:
        data = migrate(data)
    except SpecError as err:
        raise SpecError(positions.locate_all(err.problems)) from None
    train = translate_arguments(data["train"]) if isinstance(data.get("train"), dict) else None
    if train:
        data = {**data, "train": train.values}
        problems += [positions.locate(replace(p, path=f"train.{p.path}"), ("train", p.path)) for p in train.problems]
        positions = _also_called(positions, train.origins)
    spec = None
    try:
        spec = validate_fields(JobSpec, data)
    except ValidationError as err:
        problems += [_locate(detail, positions) for detail in err.errors(include_url=False)]
    if spec is None or problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    notes = [positions.locate(replace(n, path=f"train.{n.path}"), ("train", n.path)) for n in train.notes] if train else []
    return LoadedSpec(spec, positions, tuple(notes))


def _locate(detail: ErrorDetails, positions: Positions) -> Problem:
    """Return the problem for an error, with its position in the text."""
    at_key = detail["type"] == "extra_forbidden"
    return positions.locate(make_problem(detail, JobSpec), find_path(detail), at_key=at_key)


def _also_called(positions: Positions, origins: Mapping[str, str]) -> Positions:
    """The fields of `train` stand where the names stand that they were translated from."""

    def with_origins(table: Mapping[Path, Any]) -> dict[Path, Any]:
        named = {("train", *parse_path(name)): ("train", origin) for name, origin in origins.items()}
        return {**table, **{field: table[origin] for field, origin in named.items() if origin in table}}

    keys, values, assigned = map(with_origins, (positions.keys, positions.values, positions.assigned))
    return replace(positions, keys=keys, values=values, assigned=assigned)
