"""The rule for a user's own pattern of progress lines, for the spec and for the code that applies the pattern."""

from __future__ import annotations

from typing import NamedTuple

from kfjob.patterns import SYNTAX_HINT, Pattern, PatternError

PROGRESS_GROUPS = (
    "step", "step_unit", "total", "epoch_steps", "loss", "speed", "speed_unit", "unit", "tokens_per_second", "lr", "epoch",
    "epochs", "grad_norm", "when",
)  # fmt: skip
"""The names that a pattern may give to its groups; `docs/reference/progress.md` describes them."""


class PatternProblem(NamedTuple):
    """The reason why a pattern is invalid."""

    title: str
    detail: str | None = None
    hint: str | None = None


def check_pattern(pattern: str) -> PatternProblem | None:
    """Return why a pattern is invalid; None for a regular expression with a group `step` or `loss` and no unknown group."""
    try:
        groups = Pattern(pattern).names
    except PatternError as error:
        return PatternProblem(
            "`progress` is not a regular expression",
            detail=str(error),
            hint=SYNTAX_HINT,
        )
    hint = f"valid group names are {', '.join(f'`{name}`' for name in PROGRESS_GROUPS)}"
    if unknown := sorted(set(groups) - set(PROGRESS_GROUPS)):
        return PatternProblem(f"unknown group `{unknown[0]}` in `progress`", hint=hint)
    if not groups.keys() & {"step", "loss"}:
        return PatternProblem("`progress` has neither a group `step` nor a group `loss`", hint=hint)
    if Pattern(pattern).search(""):
        return PatternProblem("`progress` matches every line", hint="include text that only progress lines contain")
    return None
