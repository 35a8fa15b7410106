"""Manifest templates as a user names them, with the values for their names, and the objects that these make."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from msgspec import Struct, field

from kfjob.base.errors import Problem, SpecError
from kfjob.redaction import Redactor, find_secret
from kfjob.source.foreign_formats import find_language_problem
from kfjob.source.manifest import ManifestObject, list_objects
from kfjob.source.template import fill as engine


class Template(Struct, frozen=True, kw_only=True):
    """Manifest templates as the user names them, and the values for their names."""

    files: tuple[tuple[str, str], ...]
    """Name and text of each file; together they are one manifest."""
    values: Mapping[str, str]
    exported: Mapping[str, str] = field(default_factory=dict)
    """Exported values of names that have another value in a pod."""
    keep: Collection[str] = ()
    only: Collection[str] | None = None
    progress: str | None = None
    """The pattern of the job's progress lines, which a manifest has no field for."""

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return ", ".join(name for name, _ in self.files)

    def hide_secrets(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return the problems with a mark in place of each value of the user that is a secret."""
        secrets = [value for name, value in self.values.items() if value and find_secret(value, name)]
        redactor = Redactor(secrets)
        return [
            replace(problem, title=redactor.text(problem.title), hint=redactor.text(problem.hint) if problem.hint else None)
            if any(secret in f"{problem.title} {problem.hint}" for secret in secrets)
            else problem
            for problem in problems
        ]

    def render(self, values: Mapping[str, str]) -> tuple[list[ManifestObject], list[str]]:
        """Return the objects of all files, and notices about the references that stay; `values` are added to the user's.

        Raises:
            SpecError: a variable has no value, or a file is not a manifest.
        """
        objects: list[ManifestObject] = []
        notices: dict[str, None] = {}
        only = None if self.only is None else {*self.only, *values}
        problems: list[Problem] = []
        for name, text in self.files:
            try:
                rendered = engine.render(
                    text,
                    values={**values, **self.values},
                    keep=self.keep,
                    only=only,
                    exported=self.exported,
                    file=name,
                )
            except SpecError as err:
                problems += err.problems
                continue
            objects += list_objects(rendered)
            notices |= dict.fromkeys(rendered.notices)
        if problems:
            raise SpecError(self.explain_language(problems) or problems)
        return objects, list(notices)

    def explain_language(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return the problem of a file in another template language, if one of the problems is on a line of that language."""
        problems = list(problems)
        for name, text in self.files:
            in_file = [problem for problem in problems if problem.file == name]
            if language := find_language_problem(text, (problem.line for problem in in_file), file=name):
                return [language]
        return []
