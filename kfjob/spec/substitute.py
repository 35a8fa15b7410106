"""`${NAME}` and `${NAME:-default}` in the scalars of a spec. Pure.

Braces only: `$NAME` is the shell's own, and so are names such as `${HOSTNAME}` that mean something in a pod, unless somebody
gives them a value. `$${NAME}` stands for `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kfjob.errors import Problem
from kfjob.spec.variables import REFERENCE, Fate, Variables

_ESCAPED = re.compile(r"\$\$(?=\{)")
_WHY = {
    Fate.MISSING: "has no value: nobody gave it",
    Fate.EMPTY: "has no value: it was given, but is empty",
    Fate.NESTED: "has a default with another name in braces, which cannot be replaced",
}


class Substitution:
    """Replaces, and remembers what had no value."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._variables = Variables(values=values)
        self._values = values
        self._missing: dict[tuple[str, Fate], list[tuple[str, str, tuple[int, int]]]] = {}

    def replace(self, text: str, *, path: str, place: tuple[int, int]) -> str:
        """The text of the scalar at `path`, with values in it."""

        def value(found: re.Match[str]) -> str:
            if not found["braced"] or (fate := self._variables.fate(found)) is Fate.LEFT:
                return found[0]
            if fate is not Fate.REPLACED:
                self._missing.setdefault((found["braced"], fate), []).append((found[0], path, place))
                return found[0]
            return self._values.get(found["braced"]) or found["default"] or ""

        # in parts, so that nothing in a value is taken for an escape
        parts, at = [], 0
        for found in REFERENCE.finditer(text):
            parts += [_ESCAPED.sub("$", text[at : found.start()]), value(found)]
            at = found.end()
        return "".join([*parts, _ESCAPED.sub("$", text[at:])])

    def problems(self) -> list[Problem]:
        """One problem for each name without a value, with all its places."""
        return [self._problem(name, fate, places) for (name, fate), places in self._missing.items()]

    def _problem(self, name: str, fate: Fate, places: list[tuple[str, str, tuple[int, int]]]) -> Problem:
        (said, path, (line, column)), *more = places
        return Problem(
            title=f"`{said}` {_WHY[fate]}",
            path=path,
            line=line,
            column=column,
            detail=f"also at {', '.join(f'{line}:{column}' for _, _, (line, column) in more)}" if more else None,
            hint=f"give it in the env file or with `--var {name}=…`; `$${{{name}}}` stands for itself",
        )
