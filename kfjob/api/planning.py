"""Plan a job from its spec: submit, render, diff, explain, dry runs and preflight all call `plan_job`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import choice

from kfjob.api.job_script import read_script, read_shell_script
from kfjob.api.settings import Settings
from kfjob.api.target import Target, explain_namespace, find_target
from kfjob.base.common_types import JsonMapping, JsonObject, Notify, ignore_notice
from kfjob.base.errors import KfjobError, Problem, SpecError
from kfjob.base.text import plural
from kfjob.kinds.pytorchjob.manifest import check_overrides, compile_manifests, find_override_problems
from kfjob.lint.check import lint
from kfjob.plan import DEFAULT_ETCD_IMAGE, Context, JobPlan, resolve
from kfjob.source.spec_text import Draft, LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.spec.repair import CheckedFields
from kfjob.validation.paths import join_path, parse_path
from kfjob.validation.positions import Positions

_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job as it would be submitted."""

    spec: JobSpec
    plan: JobPlan
    target: Target
    """The target, with the namespace of the plan."""
    manifests: tuple[JsonObject, ...]
    """The objects for the API server, the PyTorchJob first; none for the local backend."""
    findings: tuple[Problem, ...]
    """What the lint rules found, errors first, with positions in the text."""
    warnings: tuple[Problem, ...]
    """Fields of the text that are accepted but have no effect."""
    positions: Positions = field(default_factory=Positions)
    """Where the fields are in the text."""

    @property
    def summary(self) -> str:
        """The job in one line."""
        count = self.plan.processes_per_node
        processes = plural(int(count), "process", "processes") if count.isdecimal() else f"`{count}` processes"
        return f"{plural(self.plan.nodes, 'node')}, {processes} per node, rendezvous {self.plan.rendezvous.backend}"

    def check_findings(self, notify: Notify) -> None:
        """Send every warning to `notify`.

        Raises:
            SpecError: a finding is an error; with the setting `strict`, a warning is one too.
        """
        strict = self.target.settings.strict
        problems = _apply_strict([*self.warnings, *self.findings]) if strict else list(self.findings)
        if any(problem.severity == "error" for problem in problems):
            raise SpecError(_sort(problems))
        for problem in (*self.warnings, *self.findings):
            notify("\n".join(problem.lines()))


PlanCheck = Callable[[Planned], Iterable[Problem]]
"""Finds more problems of a plan than the lint rules; they have paths and no positions."""


def check_nothing(_planned: Planned) -> Iterable[Problem]:
    """Return no problems."""
    return ()


def plan_job(
    loaded: LoadedSpec,
    target: Target,
    *,
    launch: str | None = None,
    start_folder: str = "",
    check: PlanCheck = check_nothing,
) -> Planned:
    """Decide every value of the job for the target, compile its manifests and lint it.

    `launch` is the id of a live launch; without it, the plan gets a new one. A local job starts in `start_folder`, or in the
    current folder. What `check` finds is added to the findings.

    Raises:
        SpecError: every problem of the spec, with its position in the text.
    """
    try:
        plan = resolve_spec(loaded.spec, loaded.positions, make_context(target, launch=launch, start_folder=start_folder))
    except SpecError as err:
        checked = CheckedFields(JobSpec, spec=loaded.spec)
        more = _find_more_problems(checked, loaded.positions, target, err.problems, check=check)
        raise SpecError(_sort([*err.problems, *more])) from None
    planned = Planned(
        spec=loaded.spec,
        plan=plan,
        target=replace(target, namespace=plan.namespace),
        manifests=tuple(compile_manifests(plan)) if target.kind.has_api_server else (),
        findings=_lint(loaded, plan, target),
        warnings=loaded.warnings,
        positions=loaded.positions,
    )
    more = loaded.positions.locate_all(check(planned))
    return replace(planned, findings=tuple(_sort([*planned.findings, *more]))) if more else planned


def _apply_strict(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with each warning as an error."""
    return [replace(problem, severity="error") if problem.severity == "warning" else problem for problem in problems]


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
    raise SpecError(_sort([*draft.problems, *problems]))


def _find_more_problems(
    checked: CheckedFields, positions: Positions, target: Target, problems: Sequence[Problem] = (), *, check: PlanCheck
) -> list[Problem]:
    """Return what planning, lint and `check` find in a spec that has `problems` already, except what follows from these."""
    spec, context = checked.spec, make_context(target)
    if spec is None:
        return []
    replaced = {parse_path(problem.path) for problem in problems}
    plan_problems: Sequence[Problem] = ()
    if not problems:
        try:
            resolve_spec(spec, Positions(), context)
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
        plan = resolve_spec(spec, Positions(), context)
        needs = (need for need in check(_plan_draft(checked.spec or spec, plan, target)) if need.severity != "note")
        script, shell_script = read_script(plan, target), read_shell_script(plan, target)
        findings = [*lint(spec, plan, script=script, shell_script=shell_script, ignore=target.settings.ignore), *needs]
        more += [problem for problem in findings if not checked.concerns_replaced(problem)]
    return positions.locate_all(replace(p, path=join_path(checked.find_origin(parse_path(p.path)))) for p in more)


def _plan_draft(spec: JobSpec, plan: JobPlan, target: Target) -> Planned:
    return Planned(spec=spec, plan=plan, target=target, manifests=(), findings=(), warnings=())


def _sort(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda p: (_SEVERITIES.index(p.severity), p.line or 0, p.column or 0))


def plan_manifest(loaded: LoadedSpec, target: Target, manifest: JsonMapping, *, etcd_image: str = "") -> Planned:
    """Plan the spec that a user's PyTorchJob manifest was imported to; the lint rules also see the manifest.

    `etcd_image` is the image of the etcd that the user's manifest creates beside the job.

    Raises:
        SpecError: every problem of the spec.
    """
    plan = resolve_spec(loaded.spec, loaded.positions, make_context(target))
    findings = _lint(loaded, plan, target, manifest, etcd_image)
    return Planned(spec=loaded.spec, plan=plan, target=target, manifests=(), findings=findings, warnings=loaded.warnings)


def resolve_spec(spec: JobSpec, positions: Positions, context: Context) -> JobPlan:
    """Resolve a spec and check its overrides.

    Raises:
        SpecError: every problem, with its position in the text.
    """
    problems = find_override_problems(spec.overrides)
    checked = CheckedFields(JobSpec, spec=spec).remove_overrides(problems)
    try:
        plan = resolve(checked.spec or spec, context)
        check_overrides(plan)
    except SpecError as err:
        problems += [problem for problem in err.problems if not checked.concerns_replaced(problem)]
    if problems:
        raise SpecError(positions.locate_all(problems))
    return plan


def make_context(target: Target, *, launch: str | None = None, start_folder: str = "") -> Context:
    """Return what a plan needs from outside of the spec. A local job starts in `start_folder`, else in the current folder."""
    origin, reason = explain_namespace(target)
    return Context(
        backend=target.name,
        launch=launch or make_launch_id(),
        namespace=target.namespace,
        namespace_origin=origin,
        namespace_reason=reason,
        start_folder=(start_folder or str(Path.cwd())) if target.kind.runs_on_this_machine else "",
        etcd_image=target.settings.etcd_image or DEFAULT_ETCD_IMAGE,
    )


def make_launch_id() -> str:
    """Return an id that is unique, sorts by time and fits in a label: `20261121-083000-k3v9`."""
    suffix = "".join(choice("bcdfghjkmnpqrstvwxz23456789") for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{suffix}"


def _lint(
    loaded: LoadedSpec, plan: JobPlan, target: Target, manifest: JsonMapping | None = None, etcd_image: str = ""
) -> tuple[Problem, ...]:
    findings = lint(
        loaded.spec,
        plan,
        user_manifest=manifest,
        script=read_script(plan, target),
        shell_script=read_shell_script(plan, target),
        etcd_image=etcd_image,
        ignore=target.settings.ignore,
    )
    problems = loaded.positions.locate_all(findings)
    return tuple(_sort(_apply_strict(problems) if target.settings.strict else problems))
