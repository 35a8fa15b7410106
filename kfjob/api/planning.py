"""Run the lint rules where a spec is read, and say or refuse what they find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kfjob.api.settings import Settings
from kfjob.common_types import Notify
from kfjob.errors import SpecError
from kfjob.lint.check import lint
from kfjob.plan import JobPlan
from kfjob.spec.source import LoadedSpec


def linted(
    loaded: LoadedSpec, plan: JobPlan, *, settings: Settings, notify: Notify, written: Mapping[str, Any] | None = None
) -> JobPlan:
    """The plan, after `notice` was told every warning. `written`: as `lint` has it.

    Raises:
        SpecError: a rule found an error, or anything at all and the settings are strict.
    """
    found = loaded.positions.locate_all(lint(loaded.spec, plan, user_manifest=written))
    problems = sorted(found, key=lambda p: (p.severity != "error", p.line or 0, p.column or 0))
    if settings.strict:
        problems = [replace(problem, severity="error") for problem in problems]
    if any(problem.severity == "error" for problem in problems):
        raise SpecError(problems)
    for problem in (*loaded.warnings, *problems):
        notify("\n".join(problem.lines()))
    return plan
