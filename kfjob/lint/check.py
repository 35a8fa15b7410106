"""Run the rules over a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kfjob.errors import Problem
from kfjob.lint.catalogue import BY_ID, RULES
from kfjob.lint.job import Job
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec


def lint(spec: JobSpec, plan: JobPlan, *, user_manifest: Mapping[str, Any] | None = None) -> list[Problem]:
    """Every finding of every rule that holds for the plan's backend and that the spec does not ignore.

    `user_manifest` is the PyTorchJob where it was not compiled from the spec, but the spec read from it.
    """
    job = Job(spec, plan, user_manifest)
    asked = [rule for rule in RULES if rule.id not in spec.lint.ignore and (rule.local or plan.backend == "kubernetes")]
    found = [problem for rule in asked for problem in rule.problems(job)]
    unknown = [
        Problem(
            title=f"there is no lint rule `{name}` to ignore",
            path=f"lint.ignore.{index}",
            hint="docs/reference/lint.md lists them",
            severity="warning",
        )
        for index, name in enumerate(spec.lint.ignore)
        if name not in BY_ID
    ]
    return [*found, *unknown]
