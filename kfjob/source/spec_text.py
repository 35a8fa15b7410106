"""Load a job spec from text, with the line and column of every field, and report every problem at once.

Pure: the caller provides the text; the name of its file appears in messages only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Problem, SpecError
from kfjob.source.assign import apply_assignments, find_kept_arguments
from kfjob.source.foreign_formats import (
    describe_spec,
    explain_documents,
    explain_syntax,
    find_foreign_fields,
    find_foreign_format,
    find_language_problem,
    find_other_file,
)
from kfjob.source.script_devices import check_devices
from kfjob.source.yaml_text import ParsedText, parse_yaml, parse_yaml_with_problems
from kfjob.spec.job import SPEC_VERSION, JobSpec
from kfjob.trainspec.script_translation import Translation, translate_arguments
from kfjob.validation.field_paths import Path, Positions, join_path, parse_path
from kfjob.validation.pydantic_errors import describe_kind, find_path, make_problems
from kfjob.validation.spec_model import list_errors, validate_fields

__all__ = ["LoadedSpec", "Positions", "load_spec", "parse_yaml"]


class LoadedSpec(Struct, frozen=True):
    """A spec and the positions of its fields."""

    spec: JobSpec
    positions: Positions
    warnings: tuple[Problem, ...] = ()
    """Fields that are accepted but have no effect, or another one than their writer may expect."""
    file_record: str = ""
    """The digest of the text and the path of the file that the spec was read from; "" for a spec that is not from a file."""


class Draft(Struct, frozen=True, kw_only=True):
    """A spec that may have problems."""

    data: JsonMapping
    """The fields of the text."""
    spec: JobSpec | None
    """The spec; None if a field has a problem."""
    positions: Positions
    problems: tuple[Problem, ...]
    """All problems of the text, its references and its fields, in the order of the text."""
    warnings: tuple[Problem, ...] = ()

    def finish(self) -> LoadedSpec:
        """Return the spec.

        Raises:
            SpecError: the spec has problems.
        """
        if self.problems or self.spec is None:
            raise SpecError(self.problems)
        return LoadedSpec(self.spec, self.positions, self.warnings)


def load_spec(
    text: str, *, file: str | None = None, assignments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> LoadedSpec:
    """Load one YAML (or JSON) document.

    `${NAME}` and `${NAME:-default}` are replaced by `variables`; `$${NAME}` stands for the text `${NAME}`. Then `assignments`
    (`nodes=4`, `volumes.0.pvc=data`) override fields of the text.

    Raises:
        SpecError: the spec has problems; it holds all of them with their positions in the text.
    """
    return draft_spec(text, file=file, assignments=assignments, variables=variables).finish()


def draft_spec(
    text: str, *, file: str | None = None, assignments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> Draft:
    """Return the spec of a document as `load_spec` does, with the problems of its fields.

    Raises:
        SpecError: the text is not YAML, or not a job spec at all.
    """
    if other := find_other_file(text, file):
        raise other
    try:
        parsed = parse_yaml_with_problems(text, file=file, variables=variables or {})
    except SpecError as error:
        lines = [problem.line for problem in error.problems]
        if language := find_language_problem(text, lines, file=file, expected="a job spec"):
            raise SpecError([language]) from None
        raise (explain_documents(text, file) or explain_syntax(error, file)) from None
    return _draft(parsed, file=file, assignments=assignments)


def draft_fields(fields: JsonMapping, *, assignments: Sequence[str] = (), origins: Mapping[Path, str] | None = None) -> Draft:
    """Return the spec of a mapping, such as a dictionary in Python; `assignments` override its fields.

    `origins` says for messages where fields come from, such as an option.

    Raises:
        SpecError: the mapping is not a job spec at all.
    """
    parsed = ParsedText(data=dict(fields), positions=Positions(assigned=origins or {}), problems=[], unresolved=frozenset())
    return _draft(parsed, assignments=assignments)


def _draft(parsed: ParsedText, *, file: str | None = None, assignments: Sequence[str] = ()) -> Draft:
    data, positions, problems = parsed.data, parsed.positions, list(parsed.problems)
    if not isinstance(data, dict):
        title = f"this is {'empty' if data is None else f'a {describe_kind(data)}'}, not a job spec"
        raise SpecError([Problem(title=title, file=file, line=1, column=1, hint=describe_spec(file or ""))])
    if problem := find_foreign_format(data, file) or find_foreign_fields(data, JobSpec.model_fields, file):
        raise SpecError([positions.locate(problem, (problem.path,))])
    assigned, assignment_problems = apply_assignments(data, assignments)
    problems += assignment_problems
    positions = replace(positions, assigned={**positions.assigned, **assigned})
    _check_version(data, positions)
    unresolved = parsed.unresolved - assigned.keys()
    warnings = [note for note in parsed.notes if parse_path(note.path) not in assigned]
    warnings += [positions.locate(problem, path) for path, problem in find_kept_arguments(data, assigned)]
    if isinstance(data.get("train"), dict):
        train, device_problems = check_devices(data)
        overrides = {str(path[1]) for path in assigned if path[0] == "train" and len(path) > 1}
        translation = translate_arguments(train, overrides=overrides)
        problems += _locate_in_train(device_problems, positions)
        data = {**data, "train": translation.values}
        problems += [
            problem
            for problem in _locate_in_train(translation.problems, positions)
            if parse_path(problem.path) not in unresolved
        ]
        warnings += _locate_in_train(translation.warnings, positions)
        positions = _add_translated_positions(positions, translation)
        unresolved |= _find_translated(translation, unresolved)
    spec, field_problems = _check_fields(data, positions, unresolved)
    problems = sorted([*problems, *field_problems], key=lambda p: (p.line or 0, p.column or 0))
    return Draft(data=data, spec=spec, positions=positions, problems=tuple(problems), warnings=tuple(warnings))


def _check_fields(data: JsonMapping, positions: Positions, unresolved: frozenset[Path]) -> tuple[JobSpec | None, list[Problem]]:
    """Return the spec or the problems of its fields. The scalars at `unresolved` have problems of their own already."""
    if data.get("train", "") is None and not data.get("command"):
        problem = Problem(title="`train` is empty", path="train", hint="indent the lines below it, which are its fields")
        return None, [positions.locate(problem, ("train",), at_key=True)]
    try:
        return validate_fields(JobSpec, data), []
    except ValidationError as error:
        details = [detail for detail in list_errors(error) if find_path(detail) not in unresolved]
        return None, make_problems(details, JobSpec, positions)


def _check_version(data: JsonMapping, positions: Positions) -> None:
    version = data.get("version", SPEC_VERSION)
    if isinstance(version, int) and version > SPEC_VERSION:
        title = f"the spec has schema version {version}, but this kfjob supports versions up to {SPEC_VERSION}"
        hint = f"install a kfjob that supports schema version {version}"
        raise SpecError([positions.locate(Problem(title=title, path="version", hint=hint), ("version",))])


def _locate_in_train(problems: Sequence[Problem], positions: Positions) -> list[Problem]:
    """Return problems of the `train` section, whose paths begin inside it, with their positions."""
    return [positions.locate(dataclasses.replace(p, path=join_path(("train", p.path))), ("train", p.path)) for p in problems]


def _add_translated_positions(positions: Positions, translation: Translation) -> Positions:
    """Give each field of `train` the position of the argument that it was translated from."""
    origins = {("train", *parse_path(field)): ("train", argument) for field, argument in translation.origins.items()}

    def add_fields(table: Mapping[Path, Any]) -> dict[Path, Any]:
        return {**table, **{field: table[argument] for field, argument in origins.items() if argument in table}}

    keys, values, assigned = map(add_fields, (positions.keys, positions.values, positions.assigned))
    return replace(positions, keys=keys, values=values, assigned=assigned)


def _find_translated(translation: Translation, unresolved: frozenset[Path]) -> frozenset[Path]:
    """Return the fields of `train` that come from arguments without a value."""
    origins = ((("train", *parse_path(field)), ("train", argument)) for field, argument in translation.origins.items())
    return frozenset(field for field, argument in origins if argument in unresolved)
