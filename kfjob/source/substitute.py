"""Replace `${NAME}` and `${NAME:-default}` in the scalars of a spec. Pure.

Only names in braces are replaced: `$NAME` belongs to the shell. So do names such as `${HOSTNAME}` that have a value inside a
pod, unless the user provides one. `$${NAME}` stands for the text `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kfjob.base.errors import Problem
from kfjob.shell.variables import (
    LEAVES_NOTHING,
    UNRESOLVED_REASONS,
    Reader,
    Resolution,
    Variables,
    find_references,
    resolve,
    write_value_hint,
)

_ESCAPED = r"\$\$(?=\{)"
_MAY_BE_EMPTY = r"(?:^|\.)(?:env|command|args|labels|annotations)\.|\.value$|^command$"
"""Paths of texts that can be empty on purpose."""
_Occurrence = tuple[str, str, tuple[int, int]]
"""The reference as written, the path of its scalar, and the scalar's line and column."""


def escape_references(value: Any) -> Any:
    """Return a value of a spec with `$${` for each `${` of its texts, so that the spec's reader gives back the same texts."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: escape_references(item) for key, item in value.items()}
    return [escape_references(item) for item in value] if isinstance(value, list | tuple) else value


class Substitution:
    """Replaces references, and collects those that have no value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._variables = Variables(values=values)
        self._values = values
        self._empty: list[tuple[str, _Occurrence]] = []
        self.notes: list[Problem] = []
        """The texts that are empty although their writer may not have meant it."""
        self._unresolved: dict[tuple[str, Resolution], list[_Occurrence]] = {}

    def replace(self, text: str, *, path: str, position: tuple[int, int]) -> tuple[str, bool]:
        """Return the text of the scalar at `path` with its references replaced, and whether all of them have a value."""
        is_resolved = True

        def find_value(reference: re.Match[str]) -> str:
            nonlocal is_resolved
            resolution = self._variables.classify(reference, reader=Reader.PROGRAM)
            if not reference["braced"] or resolution is Resolution.FOR_THE_POD:
                return reference[0]
            if resolution is not Resolution.REPLACED:
                is_resolved = False
                self._unresolved.setdefault((reference["braced"], resolution), []).append((reference[0], path, position))
                return reference[0]
            replacement = resolve(reference, self._values)
            return replacement.text if replacement else ""

        # Escapes are replaced between the references only: a value may contain `$${`.
        parts, offset = [], 0
        for reference in find_references(text):
            parts += [re.sub(_ESCAPED, "$", text[offset : reference.start()]), find_value(reference)]
            offset = reference.end()
        replaced = "".join([*parts, re.sub(_ESCAPED, "$", text[offset:])])
        if text and not replaced:
            is_resolved = self._add_empty(text, path=path, position=position)
        return replaced, is_resolved

    def _add_empty(self, text: str, *, path: str, position: tuple[int, int]) -> bool:
        """Add a text of which the references leave nothing, and return whether it may be empty."""
        if not re.search(_MAY_BE_EMPTY, path):
            name = next(find_references(text))["braced"]
            self._empty.append((name, (text, path, position)))
            return False
        if not any(reference["dash"] for reference in find_references(text)):  # a default is empty on purpose
            line, column = position
            title = f"`{text}`: {LEAVES_NOTHING}"
            self.notes.append(Problem(title=title, path=path, line=line, column=column, severity="note"))
        return True

    def list_missing(self) -> frozenset[str]:
        """Return the names that need a value."""
        names = {name for name, resolution in self._unresolved if resolution is not Resolution.NESTED}
        return frozenset(names | {name for name, _ in self._empty})

    def list_problems(self) -> list[Problem]:
        """Return one problem for each name without a value, with all its positions."""
        unresolved = [
            _make_problem(name, UNRESOLVED_REASONS[resolution], matches)
            for (name, resolution), matches in self._unresolved.items()
        ]
        return unresolved + [
            _make_problem(name, "has an empty value, and this field needs one", [use]) for name, use in self._empty
        ]


def _make_problem(name: str, reason: str, occurrences: list[_Occurrence]) -> Problem:
    (reference, path, (line, column)), *others = occurrences
    may_be_empty = all(re.search(_MAY_BE_EMPTY, path) for _, path, _ in occurrences)
    return Problem(
        title=f"`{reference}` {reason}",
        path=path,
        line=line,
        column=column,
        detail=f"also at {', '.join(f'{line}:{column}' for _, _, (line, column) in others)}" if others else None,
        hint=f"{write_value_hint(name, may_be_empty=may_be_empty)}; write `$${{{name}}}` for the text itself",
    )
