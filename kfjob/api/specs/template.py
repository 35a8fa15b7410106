"""Render manifest templates with the user's values, check the job that they make, and submit their objects unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kfjob.api.planning import Planned, make_launch_id, plan_manifest
from kfjob.api.settings import Settings
from kfjob.api.specs.imports import check_conversion
from kfjob.api.specs.template_checks import (
    check_containers,
    check_job,
    check_others,
    explain_structure,
    find_object_problems,
    say_once,
)
from kfjob.api.specs.template_files import Template
from kfjob.api.target import Target, make_target
from kfjob.backends.resources import is_creatable
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import join_names, plural
from kfjob.kinds.images import ImageChange, replace_image
from kfjob.kinds.launch_record import add_observe_config, add_record
from kfjob.kinds.pytorchjob.admission import EMPTY_WORKER, EMPTY_WORKER_REASON, remove_empty_worker
from kfjob.kinds.pytorchjob.importer.import_job import import_objects
from kfjob.kinds.pytorchjob.importer.job_search import OWN_OBJECT, find_jobs
from kfjob.kinds.pytorchjob.importer.unsupported_parts import fit_to_spec
from kfjob.kinds.pytorchjob.manifest_fields import find_manifest_path, use_manifest_names
from kfjob.lint.images import IMAGE_RULES
from kfjob.objects.api_objects import PYTORCHJOB, count_replicas
from kfjob.objects.workload import find_workload
from kfjob.source.manifest import ManifestObject, find_namespaces, select_jobs
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.job import JobSpec
from kfjob.validation.positions import Positions


@dataclass(frozen=True, kw_only=True)
class PlannedTemplate:
    """The objects of a template as they would be submitted, and what was found in them."""

    template: Template
    objects: tuple[ManifestObject, ...]
    """In the order of the files; each has the job's namespace."""
    target: Target
    """The target, with the job's namespace."""
    launch: str
    findings: tuple[Problem, ...]
    """What the API server, the operator and the lint rules have against the job, errors first, with positions."""
    planned: Planned | None
    """The plan of the spec that the job can be imported to; None if `findings` has errors that leave no plan."""

    @property
    def job(self) -> ManifestObject:
        """The PyTorchJob."""
        (job,) = select_jobs(self.objects)
        return job

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """Problems of the text itself: none, because those of a template are errors."""
        return ()

    @property
    def summary(self) -> str:
        """The job in one line."""
        replicas = self.job.value["spec"]["pytorchReplicaSpecs"]
        counts = (f"{kind} {count_replicas(replica)}" for kind, replica in replicas.items())
        others = f"; with {join_names(item.title for item in self.others)}" if self.others else ""
        return f"{self.job.title}, replicas: {', '.join(counts)}{others}"

    @property
    def others(self) -> tuple[ManifestObject, ...]:
        """The other objects."""
        return tuple(item for item in self.objects if item.kind != PYTORCHJOB)

    def load_spec(self) -> LoadedSpec:
        """Return the spec that the job can be imported to.

        Raises:
            SpecError: the job has errors that leave no spec.
        """
        return LoadedSpec(self.plan_for_cluster().spec, Positions())

    def plan_for_cluster(self) -> Planned:
        """Return the plan with the template's own objects, and with what was found.

        Raises:
            SpecError: the job has errors that leave no plan.
        """
        if self.planned is None:
            raise SpecError(self.findings)
        return replace(self.planned, manifests=self.compile(), findings=self.findings, target=self.target)

    def locate_all(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems with paths of a spec with the manifest's paths and positions; those with a position stay."""
        return [_locate_in_job(problem, self.job) for problem in problems]

    def check_findings(self, notify: Notify) -> None:
        """Send every finding to `notify`.

        Raises:
            SpecError: a finding is an error.
        """
        if any(finding.severity == "error" for finding in self.findings):
            raise SpecError(self.findings)
        for problem in self.findings:
            notify("\n".join(problem.lines()))

    def compile(self, image: ImageChange | None = None) -> tuple[JsonObject, ...]:
        """Return the objects for the API server, with a record of them on the PyTorchJob; `image` changes the job's image.

        Raises:
            UsageError: `image` cannot be applied, because the job does not have exactly one image.
        """
        objects: Sequence[JsonObject] = [item.value for item in self.objects]
        if image:
            objects = replace_image(objects, image)
        if self.template.progress:
            objects = add_observe_config(objects, progress=self.template.progress)
        return add_record(objects, launch=self.launch)


def plan_template(
    template: Template, settings: Settings, *, notify: Notify, launch: str | None = None, is_submitted: bool = True
) -> PlannedTemplate:
    """Return the job of a template: its objects after the values, and everything that is wrong with them.

    `KFJOB_LAUNCH` (a launch id, for a rendezvous id) and `KFJOB_NAMESPACE` (the job's namespace) also have values. `launch` is
    the id of a live launch; without it, the template gets a new one. If it is not to be submitted, fields that kfjob's
    schema does not know are only warnings.

    Raises:
        SpecError: a variable has no value, or the objects do not make one job in one namespace.
    """
    try:
        planned = _plan(template, settings, launch or make_launch_id(), notify, is_submitted=is_submitted)
    except SpecError as err:
        raise SpecError(template.hide_secrets(err.problems)) from None
    return replace(planned, findings=tuple(template.hide_secrets(planned.findings)))


def _plan(template: Template, settings: Settings, launch: str, notify: Notify, *, is_submitted: bool) -> PlannedTemplate:
    objects, target = _render(template, settings, launch, notify)
    if problems := list(find_object_problems(objects, template, settings.namespace)):
        raise SpecError(problems)
    objects = [_remove_empty_worker(item.with_namespace(target.namespace), notify) for item in objects]
    findings = [*check_job(objects, is_submitted=is_submitted), *check_containers(objects, settings)]
    findings = [explain_structure(problem, template) for problem in findings]
    if language := template.explain_language(findings):
        raise SpecError(language)
    planned = PlannedTemplate(
        template=template,
        objects=tuple(objects),
        target=target,
        launch=launch,
        findings=tuple(say_once((*findings, *check_others(objects)))),
        planned=None,
    )
    if any(finding.severity == "error" and finding.rule not in IMAGE_RULES for finding in findings):
        return planned
    plan, more = _lint(objects, launch, target)
    return replace(planned, findings=tuple(say_once((*planned.findings, *more))), planned=plan)


def render_template(template: Template, settings: Settings, *, notify: Notify) -> tuple[JsonObject, ...]:
    """Return the objects of a template for output. Without exactly one PyTorchJob they are not a job, and nothing is added.

    Raises:
        SpecError: a variable has no value, or the job has an error.
    """
    if list_kinds(template, settings).count(PYTORCHJOB) == 1:
        planned = plan_template(template, settings, notify=notify, is_submitted=False)
        planned.check_findings(notify)
        return planned.compile()
    objects, target = _render(template, settings, make_launch_id(), notify)
    if len(select_jobs(objects)) > 1:
        notify(f"`{template.name}` has {plural(len(select_jobs(objects)), PYTORCHJOB)}, so they are not linted")
    if not settings.namespace:
        return tuple(item.value for item in objects)
    return tuple((item.with_namespace(target.namespace) if is_creatable(item.value) else item).value for item in objects)


def list_kinds(template: Template, settings: Settings) -> list[str]:
    """Return the kind of each object in a template.

    Raises:
        SpecError: a variable has no value, or a file is not a manifest.
    """
    objects, _ = _render(template, settings, make_launch_id(), ignore_notice)
    return [item.kind for item in objects]


def has_inner_job(template: Template, settings: Settings) -> bool:
    """Return whether an object of a template holds a PyTorchJob in a form that `import` reads.

    Raises:
        SpecError: a variable has no value, or a file is not a manifest.
    """
    objects, _ = _render(template, settings, make_launch_id(), ignore_notice)
    return bool(find_jobs([item.value for item in objects]))


def _render(template: Template, settings: Settings, launch: str, notify: Notify) -> tuple[list[ManifestObject], Target]:
    """Return the objects, and the target with their namespace: the one that an object names, if no setting does."""
    target = replace(make_target(settings, "kubernetes"), needs_cluster=True)
    objects, notices = template.render({"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": target.namespace})
    named = [namespace for namespace in find_namespaces(objects) if namespace != target.namespace]
    if len(named) == 1 and not settings.namespace:
        target = replace(target, namespace=named[0])
        objects, notices = template.render({"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": target.namespace})
    for notice in notices:
        notify(notice)
    return objects, target


def _remove_empty_worker(item: ManifestObject, notify: Notify) -> ManifestObject:
    """Return a PyTorchJob without a Worker that has no replicas; other objects stay."""
    job = remove_empty_worker(item.value) if item.kind == PYTORCHJOB else item.value
    if job is item.value:
        return item
    notify("\n".join([EMPTY_WORKER_REASON, f"  --> {item.locate(Problem(title=''), EMPTY_WORKER, at_key=True).location()}"]))
    return replace(item, value=job)


def _lint(objects: Sequence[ManifestObject], launch: str, target: Target) -> tuple[Planned | None, tuple[Problem, ...]]:
    """Return the plan of the spec that the PyTorchJob can be imported to, and what the rules find in the job as it is.

    A value that runs and that no spec can have is a note. If the job cannot be imported for another reason, the problems are
    the reasons: they are values that Kubernetes or torchrun refuses too.
    """
    (item,) = select_jobs(objects)
    fitted, limits = fit_to_spec(item.value)
    notes = tuple(item.locate(Problem(title=limit.title, severity="note"), limit.path) for limit in limits)
    importable = [replace(item, value=fitted) if member is item else member for member in objects]
    job, values = item.value, [member.value for member in objects]
    policy = job["spec"].get("elasticPolicy") or {}
    file = item.positions.file
    try:
        conversion = check_conversion(import_objects(importable, file=file, choice=OWN_OBJECT, makes_etcd=False))
        spec = _keep_rendezvous_id(JobSpec.model_validate(conversion.spec), job, values, launch)
        store = find_workload(values, policy.get("rdzvHost") or "")
        planned = plan_manifest(LoadedSpec(spec, Positions(file)), target, job, etcd_image=store.image if store else "")
    except SpecError as err:
        return None, tuple(_locate_in_job(problem, item) for problem in err.problems)
    findings = (finding for finding in planned.findings if finding.rule not in IMAGE_RULES)
    return planned, (*(_locate_in_job(finding, item) for finding in findings), *notes)


def _locate_in_job(problem: Problem, item: ManifestObject) -> Problem:
    """Return a problem of the spec with the path and the position in the manifest; one with a position stays."""
    if problem.line is not None:
        return problem
    return item.locate(use_manifest_names(problem), find_manifest_path(problem.path, item.value))


def _keep_rendezvous_id(spec: JobSpec, job: JsonObject, objects: Sequence[JsonObject], launch: str) -> JobSpec:
    """Return the spec with the job's own rendezvous id (torch's default is `none`), if launches share the id and its store."""
    policy = job["spec"].get("elasticPolicy") or {}
    rendezvous_id = policy.get("rdzvId") or "none"
    brings_store = any(item["kind"] == "Service" and item["metadata"].get("name") == policy.get("rdzvHost") for item in objects)
    if launch in rendezvous_id or brings_store:
        return spec
    return spec.model_copy(update={"rendezvous": spec.rendezvous.model_copy(update={"id": rendezvous_id})})
