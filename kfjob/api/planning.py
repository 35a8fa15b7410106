"""Plan a job from its spec: submit, render, diff, explain, dry runs and preflight all call `plan_job`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import choice

from kfjob.api.job_script import read_script, read_shell_script
from kfjob.api.prepared import PlanCheck, PreparedJob, apply_strict, check_nothing, sort_problems
from kfjob.api.settings import Settings
from kfjob.api.target import Target, explain_namespace, find_target
from kfjob.base.common_types import JsonObject, ignore_notice
from kfjob.base.errors import KfjobError, Problem, SpecError
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import find_kind, get_job
from kfjob.lint.check import lint
from kfjob.objects import names
from kfjob.plan import DEFAULT_ETCD_IMAGE, Context, JobPlan, resolve
from kfjob.source.spec_text import Draft, LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.spec.repair import CheckedFields
from kfjob.validation.field_paths import Positions, join_path, parse_path


def plan_job(
    loaded: LoadedSpec,
    target: Target,
    *,
    launch: str | None = None,
    start_folder: str = "",
    check: PlanCheck = check_nothing,
) -> PreparedJob:
    """Decide every value of the job of a spec for the target, compile its objects and lint it; see `JobSource.prepare`.

    Raises:
        SpecError: every problem of the spec, with its position in the text.
    """
    try:
        context = make_context(target, launch=launch, start_folder=start_folder)
        plan, objects = compile_spec(loaded.spec, loaded.positions, context, target.job_kind)
    except SpecError as err:
        checked = CheckedFields(JobSpec, spec=loaded.spec)
        more = _find_more_problems(checked, loaded.positions, target, err.problems, check=check)
        raise SpecError([*err.problems, *more]) from None
    job = make_prepared(loaded.spec, plan, objects, target)
    job = replace(
        job,
        file_record=loaded.file_record,
        findings=tuple(lint_job(job, positions=loaded.positions)),
        warnings=loaded.warnings,
        locate=loaded.positions.locate_all,
    )
    more = loaded.positions.locate_all(check(job))
    return job.add_findings(more) if more else job


def make_prepared(spec: JobSpec, plan: JobPlan, objects: Sequence[JsonObject], target: Target) -> PreparedJob:
    """Return the job of a spec before anything was checked."""
    return PreparedJob(
        name=plan.name,
        launch=plan.launch,
        target=target.change(namespace=plan.namespace),
        compiled=tuple(objects),
        resolved=(spec, plan),
        records_spec=True,
    )


def finish_draft(draft: Draft, settings: Settings, *, check: PlanCheck = check_nothing) -> LoadedSpec:
    """Return the spec of a draft.

    Raises:
        SpecError: every problem of the spec: of its text, its fields, and what planning, the lint rules and `check` find in
            the rest.
    """
    if not draft.problems:
        return draft.finish()
    problems: list[Problem] = []
    with suppress(KfjobError):  # without a target, the problems of the draft are all that is known
        target = find_target(settings, notify=ignore_notice)
        problems = _find_more_problems(draft.checked, draft.positions, target, check=check)
        problems += draft.find_independent(
            lambda other: _find_more_problems(other.checked, other.positions, target, check=check),
            (*draft.problems, *problems),
        )
    raise SpecError(sort_problems([*draft.problems, *problems]))


def _find_more_problems(
    checked: CheckedFields[JobSpec], positions: Positions, target: Target, problems: Sequence[Problem] = (), *, check: PlanCheck
) -> list[Problem]:
    """Return what planning, lint and `check` find in a spec that has `problems` already, except what follows from these."""
    spec, context = checked.spec, make_context(target)
    if spec is None:
        return []
    replaced = {parse_path(problem.path) for problem in problems}
    plan_problems: Sequence[Problem] = ()
    if not problems:
        try:
            compile_spec(spec, Positions(), context, target.job_kind)
        except SpecError as err:
            plan_problems = err.problems
    checked = replace(checked, replaced=checked.replaced | replaced)
    more = [problem for problem in plan_problems if not checked.concerns_replaced(problem)]
    checked = checked.remove_overrides((*problems, *plan_problems))
    spec = checked.spec or spec
    if not spec.image:
        spec = spec.model_copy(update={"image": "image"})
        checked = replace(checked, replaced=checked.replaced | {("image",)})
    with suppress(SpecError):
        plan, objects = compile_spec(spec, Positions(), context, target.job_kind)
        job = make_prepared(checked.spec or spec, plan, objects, target)
        needs = (need for need in check(job) if need.severity != "note")
        findings = [*lint_job(make_prepared(spec, plan, objects, target), is_strict=False), *needs]
        more += [problem for problem in findings if not checked.concerns_replaced(problem)]
    return positions.locate_all(replace(p, path=join_path(checked.find_origin(parse_path(p.path)))) for p in more)


def compile_spec(spec: JobSpec, positions: Positions, context: Context, kind: JobKind) -> tuple[JobPlan, list[JsonObject]]:
    """Resolve a spec, and compile the objects that the job has on a cluster.

    Raises:
        SpecError: every problem, with its position in the text.
    """
    problems = list(kind.find_override_problems(spec.overrides))
    checked = CheckedFields(JobSpec, spec=spec).remove_overrides(problems)
    try:
        plan = resolve(checked.spec or spec, context)
    except SpecError as err:
        problems += [problem for problem in err.problems if not checked.concerns_replaced(problem)]
        raise SpecError(positions.locate_all(problems)) from None
    problems += [problem for problem in kind.find_plan_problems(plan) if not checked.concerns_replaced(problem)]
    if problems:
        raise SpecError(positions.locate_all(problems))
    return plan, kind.compile(plan)


def resolve_spec(spec: JobSpec, positions: Positions, context: Context) -> JobPlan:
    """Return the plan of a spec for the default kind of jobs; see `compile_spec`."""
    return compile_spec(spec, positions, context, find_kind(""))[0]


def make_context(target: Target, *, launch: str | None = None, start_folder: str = "") -> Context:
    """Return what a plan needs from outside of the spec. A local job starts in `start_folder`, else in the current folder."""
    origin, reason = explain_namespace(target)
    return Context(
        backend=target.name,
        launch=launch or make_launch_id(),
        namespace=target.namespace,
        namespace_origin=origin,
        namespace_reason=reason,
        start_folder=(start_folder or str(Path.cwd())) if target.capabilities.runs_on_this_machine else "",
        etcd_image=target.settings.etcd_image or DEFAULT_ETCD_IMAGE,
        name_pods=target.job_kind.name_hosts if target.capabilities.has_api_server else names.pod_names,
    )


def make_launch_id() -> str:
    """Return an id that is unique, sorts by time and fits in a label: `20261121-083000-k3v9`."""
    suffix = "".join(choice("bcdfghjkmnpqrstvwxz23456789") for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{suffix}"


def lint_job(
    job: PreparedJob,
    *,
    is_user_manifest: bool = False,
    etcd_image: str = "",
    positions: Positions | None = None,
    is_strict: bool | None = None,
) -> list[Problem]:
    """Return what the lint rules find, errors first.

    With `is_user_manifest` a user wrote the job's manifest, and `etcd_image` is the image of the etcd that it creates. With
    `is_strict` (default: the setting), warnings are errors.
    """
    plan, settings = job.plan, job.target.settings
    findings = lint(
        job.spec,
        plan,
        get_job(job.compiled),
        is_user_manifest=is_user_manifest,
        script=read_script(plan, job.target),
        shell_script=read_shell_script(plan, job.target),
        etcd_image=etcd_image,
        ignore=settings.ignore,
    )
    problems = positions.locate_all(findings) if positions else findings
    return sort_problems(apply_strict(problems) if (settings.strict if is_strict is None else is_strict) else problems)
