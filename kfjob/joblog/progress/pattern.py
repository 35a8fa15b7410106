"""The rule for a user's own pattern of progress lines, for the spec and for the code that applies the pattern."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kfjob.base.errors import Problem, UsageError
from kfjob.base.patterns import Pattern, PatternError

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


def check_pattern(pattern: str) -> list[Problem]:
    """Return why a pattern is invalid: nothing for a regular expression with a group `step` or `loss` and no unknown group.

    The groups of a text that is no regular expression are checked too, as far as they can be read.
    """
    problems = []
    try:
        groups = set(Pattern(pattern).names)
    except PatternError as error:
        problems = [_make_problem("`progress` is not a regular expression", detail=str(error), hint=error.hint)]
        groups = set(error.names)
    hint = f"valid group names are {', '.join(f'`{name}`' for name in PROGRESS_GROUPS)}"
    if unknown := sorted(groups - PROGRESS_GROUPS.keys()):
        problems.append(_make_problem(f"unknown group `{unknown[0]}` in `progress`", hint=hint))
    elif not groups & {"step", "loss"}:
        problems.append(_make_problem("`progress` has neither a group `step` nor a group `loss`", hint=hint))
    if not problems and Pattern(pattern).search(""):
        problems = [_make_problem("`progress` matches every line", hint="include text that only progress lines contain")]
    return problems


def _make_problem(title: str, *, detail: str | None = None, hint: str | None = None) -> Problem:
    return Problem(title=title, path="progress", detail=detail, hint=hint)


def refuse_pattern(pattern: str) -> None:
    """Check the pattern of a command's option.

    Raises:
        UsageError: the pattern is invalid.
    """
    if problems := check_pattern(pattern):
        first, *others = problems
        cause = "\n".join([*([first.detail] if first.detail else []), *(problem.title for problem in others)])
        hint = "\n".join(dict.fromkeys(problem.hint for problem in problems if problem.hint))
        raise UsageError(first.title, cause=cause or None, hint=hint or None)
