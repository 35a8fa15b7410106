"""The rule for a user's own pattern of progress lines, for the spec and for the code that applies the pattern."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kfjob.patterns import SYNTAX_HINT, Pattern, PatternError

PROGRESS_GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "step": "optimiser step, of the run or of the epoch",
        "step_unit": "K, M, G or T after the step",
        "total": "last step",
        "epoch_steps": "steps of one epoch",
        "loss": "training loss",
        "speed": "speed in any unit",
        "speed_unit": "K, M, G or T after the speed",
        "unit": "unit of the speed, such as `samples/s`",
        "tokens_per_second": "tokens per second of all ranks",
        "lr": "learning rate",
        "epoch": "current epoch, which may have a fraction",
        "epochs": "epochs of the run",
        "grad_norm": "norm of the gradient",
        "when": "time of the line, such as `2026-02-03 04:05:06`, in UTC",
    }
)
"""The groups that a pattern may have, with the descriptions of `docs/reference/progress.md`."""


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
    if unknown := sorted(groups.keys() - PROGRESS_GROUPS.keys()):
        return PatternProblem(f"unknown group `{unknown[0]}` in `progress`", hint=hint)
    if not groups.keys() & {"step", "loss"}:
        return PatternProblem("`progress` has neither a group `step` nor a group `loss`", hint=hint)
    if Pattern(pattern).search(""):
        return PatternProblem("`progress` matches every line", hint="include text that only progress lines contain")
    return None
