"""How a kind reads the jobs that users write as manifests: what is wrong with them, and which spec describes the same job.

Manifest templates and `kfjob import` need it. A kind without a `ManifestReader` has jobs from specs only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from msgspec import Struct

from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Problem
from kfjob.convert.conversion import Conversion
from kfjob.plan import JobPlan
from kfjob.source.manifest import ManifestObject
from kfjob.spec.job import JobSpec
from kfjob.validation.field_paths import Path


class ManifestProblem(NamedTuple):
    """A reason why a job cannot be created, or cannot run, at the path of a field in its manifest."""

    path: Path
    title: str
    hint: str | None = None
    is_at_key: bool = False
    is_unknown_field: bool = False


class ManifestChange(NamedTuple):
    """A field that was changed or left out, and why."""

    path: Path
    reason: str


class LintInput(NamedTuple):
    """A job of a manifest as the lint rules need it."""

    spec: JobSpec
    changes: list[ManifestChange]
    """Values that no spec can have, which the rules do not see."""
    etcd_image: str
    """The image of the etcd beside the job; "" without one."""


class JobChoice(Struct, frozen=True, kw_only=True):
    """Which of several jobs is meant."""

    name: str | None = None
    path: str | None = None  # inside the object or the List that holds the job, such as `spec.components.0.template`


ANY_JOB = JobChoice()
OWN_OBJECT = JobChoice(path="")
"""The job that is an object of its own, and not inside another one."""


class ManifestReader(ABC):
    """Reads manifests of one kind of job."""

    import_format: ClassVar[str]
    """The name of the kind in `kfjob import`: `pytorchjob`."""

    @abstractmethod
    def holds_job(self, item: JsonObject) -> bool:
        """Return whether an object is a job of this kind, or holds one in a form that `import_objects` reads."""

    @abstractmethod
    def import_objects(
        self, objects: Sequence[ManifestObject], *, file: str | None = None, choice: JobChoice = ANY_JOB
    ) -> Conversion:
        """Return the spec of the job among the objects, or inside one of them.

        Raises:
            SpecError: there is not exactly one job that fits the choice, or no spec can express it.
        """

    @abstractmethod
    def complete(self, job: JsonObject) -> tuple[JsonObject, ManifestChange | None]:
        """Return the job as its controller takes it, and what had to change; the job itself if nothing had to."""

    @abstractmethod
    def find_problems(self, job: JsonObject) -> Iterable[ManifestProblem]:
        """Return what the API server and the controller refuse in a job."""

    @abstractmethod
    def read_for_lint(self, objects: Sequence[ManifestObject], item: ManifestObject, launch: str) -> LintInput:
        """Return the spec that describes the job `item` of a template, with the objects beside it.

        Raises:
            SpecError: no spec can express it.
        """

    @abstractmethod
    def find_path(self, path: str, job: JsonMapping) -> Path:
        """Return the path in a job that has the meaning of the path of a spec; `()` if there is none."""

    @abstractmethod
    def use_manifest_names(self, problem: Problem) -> Problem:
        """Return a problem of a spec whose texts name the manifest's fields."""

    @abstractmethod
    def list_defaults(self, job: JsonMapping) -> Iterator[tuple[Path, str]]:
        """Yield the fields that a job lacks, with the values that its controller takes for them."""

    @abstractmethod
    def list_variables(self, job: JsonMapping, plan: JobPlan, node_rank: int) -> dict[str, str]:
        """Return the variables that the controller adds to the pod of a node rank."""
