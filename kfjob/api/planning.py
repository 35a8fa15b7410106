"""Plan a job from its spec: submit, render, diff, explain, dry runs and preflight all call `plan_job`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from secrets import choice

from msgspec.structs import replace

from kfjob.api.job_script import read_script, read_shell_script
from kfjob.api.prepared import PreparedJob, apply_strict, sort_problems
from kfjob.api.target import Target, explain_namespace
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Problem, SpecError
from kfjob.kinds.base import JobKind
from kfjob.kinds.registry import find_kind, get_job
from kfjob.lint.check import lint
from kfjob.objects import names
from kfjob.plan import DEFAULT_ETCD_IMAGE, Context, JobPlan, resolve
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions


def plan_job(loaded: LoadedSpec, target: Target, *, launch: str | None = None, start_folder: str = "") -> PreparedJob:
    """Decide every value of the job of a spec for the target, compile its objects and lint it; see `JobSource.prepare`.

    Raises:
        SpecError: every problem of the spec, with its position in the text.
    """
    target, origin, reason = target.choose_kind(loaded.spec.wanted_target)
    context = make_context(target, launch=launch, start_folder=start_folder)
    context = replace(context, kind_origin=origin, kind_reason=reason)
    plan, objects = compile_spec(loaded.spec, loaded.positions, context, target.job_kind)
    job = make_prepared(loaded.spec, plan, objects, target)
    job = replace(
        job,
        file_record=loaded.file_record,
        findings=tuple(lint_job(job, positions=loaded.positions)),
        warnings=loaded.warnings,
        locate=loaded.positions.locate_all,
    )
    return job.add_needs([_NO_IMAGE]) if target.capabilities.has_images and not loaded.spec.image else job


_NO_IMAGE = Problem(
    title="`image` is missing, and pods need one",
    path="image",
    hint="`kfjob push-image` builds one; a job on this machine (`--backend local`) needs none",
)


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


def compile_spec(spec: JobSpec, positions: Positions, context: Context, kind: JobKind) -> tuple[JobPlan, list[JsonObject]]:
    """Resolve a spec, and compile the objects that the job has on a cluster.

    Raises:
        SpecError: every problem, with its position in the text.
    """
    problems = list(kind.find_override_problems(spec.overrides))
    try:
        plan = resolve(spec, context)
    except SpecError as err:
        raise SpecError(positions.locate_all([*problems, *err.problems])) from None
    if problems := problems or list(kind.find_plan_problems(plan)):
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
        kind=target.job_kind.name if target.capabilities.has_api_server else "",
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
        objects=job.compiled,
        ignore=settings.ignore,
    )
    problems = positions.locate_all(findings) if positions else findings
    return sort_problems(apply_strict(problems) if (settings.strict if is_strict is None else is_strict) else problems)
