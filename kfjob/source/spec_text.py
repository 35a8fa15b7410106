"""Load a job spec from text, with the line and column of every field, and report every problem at once.

Pure: the caller provides the text; the name of its file appears in messages only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.source.assign import apply_assignments, find_kept_arguments
from kfjob.source.foreign_formats import explain_documents, explain_language, find_foreign_format
from kfjob.source.script_devices import check_devices
from kfjob.source.yaml_text import ParsedText, parse_yaml, parse_yaml_with_problems
from kfjob.spec.job import JobSpec
from kfjob.spec.migrate import migrate
from kfjob.spec.repair import CheckedFields, check_fields
from kfjob.trainspec.script_translation import Translation, translate_arguments
from kfjob.validation.field_paths import Path, Positions, join_path, parse_path
from kfjob.validation.pydantic_errors import describe_kind

__all__ = ["LoadedSpec", "Positions", "load_spec", "parse_yaml"]


@dataclass(frozen=True)
class LoadedSpec:
    """A spec and the positions of its fields."""

    spec: JobSpec
    positions: Positions
    warnings: tuple[Problem, ...] = ()
    """Fields that are accepted but have no effect, or another one than their writer may expect."""
    file_record: str = ""
    """The digest of the text and the path of the file that the spec was read from; "" for a spec that is not from a file."""


_STAND_INS: tuple[Callable[[str], str], ...] = ("value-of-{}".format, lambda _name: "1", lambda _name: "/a/b")
"""Values for variables without one, by name: a word, which messages can show as its reference, a number and a path."""


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """A spec whose variables without a value have a stand-in."""

    draft: Draft
    references: Mapping[str, str]
    """The references by the stand-in's text for them, which is unique in the first stand-in only."""

    def restore(self, problem: Problem) -> Problem:
        """Return the problem with references instead of their stand-ins."""
        texts = [problem.title, problem.detail or "", problem.hint or ""]
        for text, reference in self.references.items():
            texts = [shown.replace(text, reference) for shown in texts]
        return replace(problem, title=texts[0], detail=texts[1] or None, hint=texts[2] or None)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A spec that may have problems."""

    checked: CheckedFields[JobSpec]
    """The fields; where one has a problem, another value takes its place, so that more checks can run."""
    positions: Positions
    problems: tuple[Problem, ...]
    """All problems of the text, its references and its fields, in the order of the text."""
    warnings: tuple[Problem, ...] = ()
    stand_ins: tuple[StandIn, ...] = ()
    """The same spec with each stand-in for the variables without a value, if there are any."""

    def find_independent(self, find: Callable[[Draft], Iterable[Problem]], known: Iterable[Problem]) -> list[Problem]:
        """Return what `find` finds with every stand-in, and so for every value of the missing variables, but `known`.

        A problem with one stand-in only is a consequence of that value.
        """
        if not self.stand_ins:
            return []
        first, *others = [list(find(stand_in.draft)) for stand_in in self.stand_ins]
        shared = set(map(_identify, first)).intersection(*(map(_identify, problems) for problems in others))
        shared -= set(map(_identify, known))
        return [self.stand_ins[0].restore(problem) for problem in first if _identify(problem) in shared]

    def finish(self) -> LoadedSpec:
        """Return the spec.

        Raises:
            SpecError: the spec has problems.
        """
        if self.problems or self.checked.spec is None:
            raise SpecError(self.problems)
        return LoadedSpec(self.checked.spec, self.positions, self.warnings)


def _identify(problem: Problem) -> tuple[str, str]:
    return problem.path, problem.title


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
    try:
        parsed = parse_yaml_with_problems(text, file=file, variables=variables or {})
    except SpecError as error:
        if language := explain_language(text, error.problems, file=file, expected="a job spec"):
            raise SpecError([language]) from None
        raise (explain_documents(text, file) or error) from None
    draft = _draft(parsed, file=file, assignments=assignments)
    if not parsed.missing:
        return draft
    stand_ins = []
    for make_value in _STAND_INS:
        values = {name: make_value(name) for name in parsed.missing}
        other = parse_yaml_with_problems(text, file=file, variables={**(variables or {}), **values})
        references = {value: f"${{{name}}}" for name, value in values.items() if name in value}
        stand_ins.append(StandIn(draft=_draft(other, file=file, assignments=assignments), references=references))
    draft = replace(draft, stand_ins=tuple(stand_ins))
    independent = draft.find_independent(lambda other: other.problems, draft.problems)
    return replace(draft, problems=_sort((*draft.problems, *independent)))


def _sort(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))


def draft_fields(fields: JsonMapping, *, assignments: Sequence[str] = ()) -> Draft:
    """Return the spec of a mapping, such as a dictionary in Python; `assignments` override its fields.

    Raises:
        SpecError: the mapping is not a job spec at all.
    """
    parsed = ParsedText(data=dict(fields), positions=Positions(), problems=[], unresolved=frozenset())
    return _draft(parsed, assignments=assignments)


def _draft(parsed: ParsedText, *, file: str | None = None, assignments: Sequence[str] = ()) -> Draft:
    data, positions, problems = parsed.data, parsed.positions, list(parsed.problems)
    if not isinstance(data, dict):
        title = f"a job spec must be a mapping, this is {'empty' if data is None else f'a {describe_kind(data)}'}"
        raise SpecError([Problem(title=title, file=file, line=1, column=1, hint="begin with `name: …`")])
    if problem := find_foreign_format(data, file):
        raise SpecError([positions.locate(problem, (problem.path,))])
    assigned, assignment_problems = apply_assignments(data, assignments)
    problems += assignment_problems
    positions = replace(positions, assigned=assigned)
    data = _migrate(data, positions)
    unresolved = parsed.unresolved - set(assigned)
    warnings = [positions.locate(problem, path) for path, problem in find_kept_arguments(data, assigned)]
    if isinstance(data.get("train"), dict):
        train, device_problems = check_devices(data)
        translation = translate_arguments(train)
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
    checked = check_fields(JobSpec, data, positions, unresolved=unresolved)
    problems += checked.problems
    return Draft(checked=checked, positions=positions, problems=_sort(problems), warnings=tuple(warnings))


def _migrate(data: JsonObject, positions: Positions) -> JsonObject:
    try:
        return migrate(data)
    except SpecError as error:
        raise SpecError(positions.locate_all(error.problems)) from None


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


def _find_translated(translation: Translation, unresolved: frozenset[Path]) -> frozenset[Path]:
    """Return the fields of `train` that come from arguments without a value."""
    origins = ((("train", *parse_path(field)), ("train", argument)) for field, argument in translation.origins.items())
    return frozenset(field for field, argument in origins if argument in unresolved)
