"""A job as it would be submitted, and its source: every command takes a `PreparedJob`, and none asks where it comes from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import ClassVar, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.recorded_config import from_manifest
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.errors import Problem, SpecError
from kfjob.base.text import plural
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.kinds.pod_changes import ImageChange
from kfjob.kinds.registry import get_job
from kfjob.lint.images import PLACEHOLDER
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec

_SEVERITIES = ("error", "warning", "note")


class PreparedJob(Struct, frozen=True, kw_only=True):
    """A job whose every value is decided, and whose objects are compiled once."""

    name: str
    launch: str
    target: Target
    """The target, with the namespace of the job."""
    compiled: tuple[JsonObject, ...]
    """The objects that the job has on a cluster, the job among them."""
    resolved: tuple[JobSpec, JobPlan] | None
    """The spec and its plan. A template has those that its job can be imported to; None if its errors leave no plan, or if the
    objects were recorded at an earlier launch."""
    records_spec: bool = False
    """Whether the job carries its spec, so that another submit can be compared with it."""
    file_record: str = ""
    """The digest and the path of the file of the spec; "" without one."""
    relaunches: str = ""
    """The guard's relaunches before this launch, as JSON."""
    findings: tuple[Problem, ...] = ()
    """What the lint rules and the checks found, errors first, with positions in the text."""
    warnings: tuple[Problem, ...] = ()
    """Fields of the text that are accepted but have no effect."""
    locate: Callable[[Iterable[Problem]], list[Problem]] = list
    """Adds the positions in the text to problems with paths of a spec."""

    @property
    def objects(self) -> tuple[JsonObject, ...]:
        """The objects for the API server; none for the local backend."""
        return self.compiled if self.target.capabilities.has_api_server else ()

    @property
    def observe_config(self) -> ObserveConfig:
        """What observation needs of the job."""
        return self.plan.observe_config if self.records_spec else from_manifest(get_job(self.compiled))

    @property
    def summary(self) -> str:
        """The job in one line."""
        plan, count = self.plan, self.plan.processes_per_node
        processes = plural(int(count), "process", "processes") if count.isdecimal() else f"`{count}` processes"
        return f"{plural(plan.spec.nodes, 'node')}, {processes} per node, rendezvous {plan.rendezvous.backend}"

    @property
    def architecture(self) -> str:
        """The architecture of the nodes of the training pods; "" if it is unknown."""
        instance = self.resolved[1].instance if self.resolved else None
        return instance.architecture if instance else ""

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self.target.namespace

    @property
    def secrets(self) -> frozenset[str]:
        """The secrets in the objects, which messages about the job must not show."""
        from kfjob.api.secrets import find_object_secrets

        return find_object_secrets(self.compiled)

    @property
    def spec(self) -> JobSpec:
        """The spec.

        Raises:
            SpecError: the job has errors that leave no spec.
        """
        return self._get_resolved()[0]

    @property
    def plan(self) -> JobPlan:
        """The plan.

        Raises:
            SpecError: the job has errors that leave no plan.
        """
        return self._get_resolved()[1]

    def _get_resolved(self) -> tuple[JobSpec, JobPlan]:
        if self.resolved is None:
            raise SpecError(self.findings)
        return self.resolved

    def add_needs(self, problems: Iterable[Problem]) -> Self:
        """Return the job with further problems of its spec among its findings; they have no positions yet."""
        return replace(self, findings=tuple(sort_problems([*self.findings, *self.locate(problems)])))

    def check_findings(self, notify: Notify, *, to_print: bool = False) -> None:
        """Send every warning to `notify`. In objects `to_print`, a placeholder for an image is a warning too.

        Raises:
            SpecError: a finding is an error; with the setting `strict`, a warning is one too.
        """
        strict = self.target.settings.strict
        findings = [warn_of_placeholder(problem) for problem in self.findings] if to_print else list(self.findings)
        problems = apply_strict([*self.warnings, *findings]) if strict else findings
        if any(problem.severity == "error" for problem in problems):
            raise SpecError(sort_problems(problems))
        for problem in (*self.warnings, *findings):
            notify("\n".join(problem.lines()))


class JobSource(Protocol):
    """Where a job comes from: a spec, a manifest template, or the record of an earlier launch."""

    noun: ClassVar[str]
    """What a user calls it: `spec` or `template`."""

    def find_target(self, settings: Settings, *, notify: Notify, to_run: bool = False) -> Target:
        """Return the target that the settings select for this source. `notify` receives why it is this machine.

        Raises:
            UsageError: the job is `to_run`, the source needs a cluster, and the settings select this machine.
        """

    def render(self, settings: Settings, *, notify: Notify) -> tuple[JsonObject, ...]:
        """Return the objects for output, as a submit to a cluster would send them.

        Raises:
            SpecError: the problems of the job.
        """

    def prepare(self, target: Target, *, launch: str | None = None, notify: Notify) -> PreparedJob:
        """Decide every value of the job for the target, compile its objects once, and lint it.

        `launch` is the id of a live launch; without it, the job gets a new one.

        Raises:
            SpecError: the problems that leave no job.
        """

    def change_images(self, job: PreparedJob, change: ImageChange | None) -> PreparedJob:
        """Return the prepared job with its training images changed; the launch stays. None leaves them as the source says.

        Raises:
            UsageError: the job has several images, and the change can make only one.
        """


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, errors first, in the order of the text; those of the whole job come last."""
    return sorted(problems, key=lambda p: (_SEVERITIES.index(p.severity), not p.path, p.line or 0, p.column or 0))


def warn_of_placeholder(problem: Problem) -> Problem:
    """Return a placeholder for an image as a warning, and every other problem as it is."""
    return dataclasses.replace(problem, severity="warning") if problem.rule == PLACEHOLDER else problem


def apply_strict(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems with each warning as an error."""
    return [
        dataclasses.replace(problem, severity="error") if problem.severity == "warning" else problem for problem in problems
    ]
