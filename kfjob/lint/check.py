"""Run the rules over a plan."""

from __future__ import annotations

from collections.abc import Collection

from kfjob.common_types import JsonMapping
from kfjob.errors import Problem
from kfjob.lint.catalogue import BY_ID, RULES
from kfjob.lint.job import Job
from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec


def lint(
    spec: JobSpec,
    plan: JobPlan,
    *,
    user_manifest: JsonMapping | None = None,
    script: Script | None = None,
    etcd_image: str = "",
    ignore: Collection[str] = (),
) -> list[Problem]:
    """Return the violations of every rule that applies to the plan's backend and that neither the spec nor `ignore` turns off.

    `user_manifest` is the PyTorchJob that a user wrote, if the spec was read from it, and `etcd_image` the image of the etcd
    beside it. `script` is what the command starts.
    """
    job = Job(spec, plan, user_manifest, script, etcd_image)
    ignored = {*spec.lint.ignore, *ignore}
    rules = [rule for rule in RULES if rule.id not in ignored and (rule.local or not plan.kind.runs_on_this_machine)]
    unknown_rules = [
        Problem(
            title=f"there is no lint rule `{name}` to ignore",
            path=f"lint.ignore.{index}",
            hint="docs/reference/lint.md lists the rules",
            severity="warning",
        )
        for index, name in enumerate(spec.lint.ignore)
        if name not in BY_ID
    ]
    return [*(problem for rule in rules for problem in rule.find_problems(job)), *unknown_rules]
