"""Manifest templates as the source of a job: fill them with the user's values, and check the job that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.planning import compile_spec, lint_job, make_context, make_launch_id, make_prepared
from kfjob.api.prepared import PreparedJob
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_target, make_target
from kfjob.api.templates.template_checks import (
    check_containers,
    check_template_job,
    explain_structure,
    find_object_problems,
    say_once,
)
from kfjob.api.templates.template_files import Template
from kfjob.backends.resources import is_creatable
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.base.errors import Problem, SpecError, UsageError
from kfjob.base.text import join_names, plural
from kfjob.kinds.launch_record import add_observe_config, add_record
from kfjob.kinds.manifests import ManifestReader
from kfjob.kinds.pod_changes import ImageChange, replace_image
from kfjob.kinds.registry import get_kind, select_user_jobs
from kfjob.lint.images import IMAGE_RULES
from kfjob.plan import JobPlan
from kfjob.source.manifest import ManifestObject, find_namespaces
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Positions


class PreparedTemplate(PreparedJob, frozen=True, kw_only=True):
    """The job of a template, with the objects as they are in its text."""

    manifest_objects: tuple[ManifestObject, ...]
    """In the order of the files; each has the job's namespace."""

    @property
    def summary(self) -> str:
        """The job in one line."""
        templates = get_kind(self.job.value).read_pod_templates(self.job.value)
        counts = (f"{template.role} {len(template.names)}" for template in templates)
        others = [item.title for item in self.manifest_objects if item is not self.job]
        return f"{self.job.title}, replicas: {', '.join(counts)}{f'; with {join_names(others)}' if others else ''}"

    @property
    def job(self) -> ManifestObject:
        """The job among the objects."""
        ((job, _),) = select_user_jobs(self.manifest_objects)
        return job

    @property
    def reader(self) -> ManifestReader:
        """What reads the manifest of the job."""
        ((_, reader),) = select_user_jobs(self.manifest_objects)
        return reader


class TemplateSource(Struct, frozen=True):
    """Implements `JobSource` for manifest templates."""

    template: Template
    build: ImageChange | None = None
    """Builds the image that takes the place of the one in the template."""
    is_submitted: bool = True
    """Whether fields that kfjob's schema does not know are errors, because they would be lost, or only warnings."""
    noun: ClassVar[str] = "template"

    def find_target(self, settings: Settings, *, notify: Notify, to_run: bool = False) -> Target:
        """Return the cluster.

        Raises:
            UsageError: the job is to run, and the settings select this machine.
        """
        if to_run and not find_target(settings, notify=notify).capabilities.has_api_server:
            title = "this needs a cluster, and jobs run on this machine"
            spec = "`kfjob render --template … | kfjob import pytorchjob -` makes a spec, which can run here"
            raise UsageError(title, hint=f"use `--backend kubernetes`; {spec}")
        return _find_cluster(settings)

    def render(self, settings: Settings, *, notify: Notify) -> tuple[JsonObject, ...]:
        """Return the objects for output. Without exactly one job they are not linted, and nothing is added.

        Raises:
            SpecError: a variable has no value, or the job has an error.
        """
        target = _find_cluster(settings)
        if len(select_user_jobs(self.list_objects(settings))) == 1:
            job = replace(self, is_submitted=False).prepare(target, notify=notify)
            job.check_findings(notify, to_print=True)
            return job.compiled
        objects, target = _render(self.template, target, make_launch_id(), notify)
        if jobs := select_user_jobs(objects):
            notify(f"`{self.template.name}` has {plural(len(jobs), 'job')}, so they are not linted")
        if not settings.namespace:
            return tuple(item.value for item in objects)
        return tuple((item.with_namespace(target.namespace) if is_creatable(item.value) else item).value for item in objects)

    def list_objects(self, settings: Settings) -> list[ManifestObject]:
        """Return the objects of the template.

        Raises:
            SpecError: a variable has no value, or a file is not a manifest.
        """
        objects, _ = _render(self.template, _find_cluster(settings), make_launch_id(), ignore_notice)
        return objects

    def prepare(self, target: Target, *, launch: str | None = None, notify: Notify) -> PreparedTemplate:
        """Fill the template with its values, and find everything that is wrong with its objects.

        `KFJOB_LAUNCH` (a launch id, for a rendezvous id) and `KFJOB_NAMESPACE` (the job's namespace) also have values.

        Raises:
            SpecError: a variable has no value, or the objects do not make one job in one namespace.
        """
        try:
            job = self._prepare(target, launch or make_launch_id(), notify)
        except SpecError as err:
            raise SpecError(self.template.hide_secrets(err.problems)) from None
        return replace(job, findings=tuple(self.template.hide_secrets(job.findings)))

    def change_images(self, job: PreparedJob, change: ImageChange | None) -> PreparedJob:
        """Return the job with the image that a build makes, and with its training image changed."""
        build = self.build
        if build is None and change is None:
            return job
        if not isinstance(job, PreparedTemplate):
            raise TypeError("a template changes the images of its own job only")
        values = replace_image(
            [item.value for item in job.manifest_objects], lambda image: (change or str)((build or str)(image))
        )
        return replace(job, compiled=self._compile(values, job.launch))

    def _prepare(self, target: Target, launch: str, notify: Notify) -> PreparedTemplate:
        objects, target = _render(self.template, target, launch, notify)
        if problems := list(find_object_problems(objects, self.template, target.settings.namespace)):
            raise SpecError(problems)
        objects = [_complete(item.with_namespace(target.namespace), notify) for item in objects]
        ((job, reader),) = select_user_jobs(objects)
        findings = [
            *check_template_job(job, reader, is_submitted=self.is_submitted),
            *check_containers(objects, reader, target.settings),
        ]
        findings = [explain_structure(problem, self.template) for problem in findings]
        if language := self.template.explain_language(findings):
            raise SpecError(language)
        resolved: tuple[JobSpec, JobPlan] | None = None
        more: tuple[Problem, ...] = ()
        if not any(finding.severity == "error" and finding.rule not in IMAGE_RULES for finding in findings):
            resolved, more = _lint(objects, job, reader, launch=launch, target=target)
        compiled = self._compile([item.value for item in objects], launch)
        return PreparedTemplate(
            name=job.value["metadata"].get("name", ""),
            launch=launch,
            target=target,
            compiled=compiled,
            resolved=resolved,
            findings=tuple(say_once((*findings, *more))),
            locate=lambda problems: [_locate_in_job(problem, job, reader) for problem in problems],
            manifest_objects=tuple(objects),
        )

    def _compile(self, values: Sequence[JsonObject], launch: str) -> tuple[JsonObject, ...]:
        """Return the objects for the API server, with a record of them on the job."""
        if self.template.progress:
            values = add_observe_config(values, progress=self.template.progress)
        return add_record(values, launch=launch)


def _find_cluster(settings: Settings) -> Target:
    return replace(make_target(settings, "kubernetes"), needs_cluster=True)


def _render(template: Template, target: Target, launch: str, notify: Notify) -> tuple[list[ManifestObject], Target]:
    """Return the objects, and the target with their namespace: the one that an object names, if no setting does."""
    objects, notices = template.render({"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": target.namespace})
    named = [namespace for namespace in find_namespaces(objects) if namespace != target.namespace]
    if len(named) == 1 and not target.settings.namespace:
        target = target.change(namespace=named[0])
        objects, notices = template.render({"KFJOB_LAUNCH": launch, "KFJOB_NAMESPACE": target.namespace})
    for notice in notices:
        notify(notice)
    return objects, target


def _complete(item: ManifestObject, notify: Notify) -> ManifestObject:
    """Return the object; a job as its controller takes it."""
    for job, reader in select_user_jobs([item]):
        value, change = reader.complete(job.value)
        if change:
            notify(f"{change.reason}\n  --> {job.locate(Problem(title=''), change.path, at_key=True).location()}")
            return replace(job, value=value)
    return item


def _lint(
    objects: Sequence[ManifestObject], item: ManifestObject, reader: ManifestReader, *, launch: str, target: Target
) -> tuple[tuple[JobSpec, JobPlan] | None, tuple[Problem, ...]]:
    """Return the spec that the job can be imported to with its plan, and what the rules find in the job as it is.

    A value that runs and that no spec can have is a note. If the job cannot be imported for another reason, the problems are
    the reasons: they are values that Kubernetes or torchrun refuses too.
    """
    positions = Positions(item.positions.file)
    try:
        spec, changes, etcd_image = reader.read_for_lint(objects, item, launch)
        plan, _ = compile_spec(spec, positions, make_context(target), get_kind(item.value))
        imported = make_prepared(spec, plan, [item.value], target)
        problems = lint_job(imported, is_user_manifest=True, etcd_image=etcd_image, positions=positions)
    except SpecError as err:
        return None, tuple(_locate_in_job(problem, item, reader) for problem in err.problems)
    findings = (_locate_in_job(finding, item, reader) for finding in problems if finding.rule not in IMAGE_RULES)
    notes = (item.locate(Problem(title=change.reason, severity="note"), change.path) for change in changes)
    return (spec, plan), (*findings, *notes)


def _locate_in_job(problem: Problem, item: ManifestObject, reader: ManifestReader) -> Problem:
    """Return a problem of the spec with the path and the position in the manifest; one with a position stays."""
    if problem.line is not None:
        return problem
    return item.locate(reader.use_manifest_names(problem), reader.find_path(problem.path, item.value))
