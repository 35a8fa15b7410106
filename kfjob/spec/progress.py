"""What a caller's own progress pattern must look like: the one rule for the spec and for who reads with it."""

from __future__ import annotations

import re
from typing import NamedTuple

PROGRESS_GROUPS = ("step", "total", "loss", "speed", "unit", "tokens_per_second", "lr", "epoch", "grad_norm", "when")
"""Names that a pattern may give to its groups."""


class PatternProblem(NamedTuple):
    """Why a pattern cannot be used."""

    title: str
    detail: str | None = None
    hint: str | None = None


def check_pattern(pattern: str) -> PatternProblem | None:
    """Nothing for a regular expression whose named groups are out of `GROUPS`, among them `step` or `loss`."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        return PatternProblem("`progress` is not a regular expression", detail=str(error))
    hint = f"named groups may be {', '.join(f'`{name}`' for name in PROGRESS_GROUPS)}"
    if unknown := sorted(set(groups) - set(PROGRESS_GROUPS)):
        return PatternProblem(f"unknown group `{unknown[0]}` in `progress`", hint=hint)
    if not groups.keys() & {"step", "loss"}:
        return PatternProblem("`progress` names neither `step` nor `loss`", hint=hint)
    if re.search(pattern, ""):
        return PatternProblem("`progress` matches every line", hint="let it hold some text that only progress lines have")
    return None
