"""Run the rules over a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator

from msgspec.structs import replace

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Problem
from kfjob.lint.catalogue import BY_ID, RULES
from kfjob.lint.job import Job
from kfjob.lint.script import Script
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec, get_master_path, make_master_spec
from kfjob.spec.master import MasterPod


def lint(
    spec: JobSpec,
    plan: JobPlan,
    manifest: JsonMapping,
    *,
    is_user_manifest: bool = False,
    script: Script | None = None,
    shell_script: Script | None = None,
    etcd_image: str = "",
    objects: tuple[JsonMapping, ...] = (),
    ignore: Collection[str] = (),
) -> list[Problem]:
    """Return the violations of every rule that applies to the plan's backend and that neither the spec nor `ignore` turns off.

    `manifest` is the job that would be submitted, one of the `objects`; with `is_user_manifest` a user wrote it, and
    `etcd_image` is the image of the etcd beside it. `script` is what the command starts, and `shell_script` the shell's file.
    """
    job = Job(spec, plan, manifest, is_user_manifest, script, etcd_image, shell_script=shell_script, objects=objects)
    jobs = list(list_roles(job))
    ignored = {*spec.lint.ignore, *ignore}
    rules = [rule for rule in RULES if rule.id not in ignored and (rule.local or not plan.capabilities.runs_on_this_machine)]
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
    problems: list[Problem] = []
    for job in jobs:
        known = {(problem.rule, problem.title) for problem in problems}
        new = [p for rule in rules for p in rule.find_problems(job) if (p.rule, p.title) not in known]
        is_master = job.plan is plan.master
        problems += [dataclasses.replace(p, path=find_role_path(p.path, spec)) for p in new] if is_master else new
    return [*problems, *unknown_rules]


def list_roles(job: Job) -> Iterator[Job]:
    """Yield the job, and once more as the Master has it if that differs."""
    spec, plan = make_master_spec(job.spec), job.plan.master
    if spec is None or plan is None:
        yield job
        return
    workers = replace(job, role="Worker")
    yield workers
    script = job.script if plan.words == job.plan.words else None
    yield replace(workers, spec=spec, plan=plan, script=script, role="Master")


def find_role_path(path: str, spec: JobSpec) -> str:
    """Return where the spec sets a field of the Master: in `master`, or for all pods."""
    own = spec.master.model_fields_set if isinstance(spec.master, MasterPod) else set()
    master_path = get_master_path(path)
    return master_path if master_path.removeprefix("master.").partition(".")[0] in own else path
