"""What a job carries since it was submitted: its spec, or the objects of its template as the source of its next launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from kfjob.api.planning import make_launch_id
from kfjob.api.prepared import PreparedJob
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_target
from kfjob.backends.resources import is_creatable
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.errors import BackendError, Problem, SpecError
from kfjob.base.parsing import ParseError
from kfjob.joblog.events import JobSnapshot
from kfjob.kinds.launch_record import add_record, restore_objects
from kfjob.kinds.pod_changes import replace_image
from kfjob.kinds.registry import find_kind, is_job
from kfjob.objects.api_objects import describe_name
from kfjob.spec.job import JobSpec

if TYPE_CHECKING:
    from kfjob.kinds.pod_changes import ImageChange

_SHOWN_PROBLEMS, _SHOWN_CHARACTERS = 5, 1000
"""Length of the part of a damaged record that an error quotes."""


class RecordedObjects(Struct, frozen=True):
    """Implements `JobSource` for the record of a job's objects."""

    record: JobSnapshot
    manifest: str
    noun: ClassVar[str] = "template"

    def find_target(self, settings: Settings, *, notify: Notify, to_run: bool = False) -> Target:  # noqa: ARG002
        """Return the target that the settings select."""
        return find_target(settings, notify=notify)

    def render(self, settings: Settings, *, notify: Notify) -> tuple[JsonObject, ...]:
        """Return the objects of a new launch."""
        return self.prepare(find_target(settings, notify=notify), notify=notify).objects

    def prepare(
        self,
        target: Target,
        *,
        launch: str | None = None,
        notify: Notify,  # noqa: ARG002 - nothing is decided anew
    ) -> PreparedJob:
        """Return the recorded objects with another launch id.

        Raises:
            BackendError: somebody has damaged the record.
            UsageError: the template had a Secret, which is not in the record.
        """
        launch = launch or make_launch_id()
        try:
            objects = restore_objects(self.manifest, previous_launch=self.record.launch, launch=launch)
        except ParseError as err:
            raise _make_unusable(self.record, str(err)) from err
        if foreign := next((item for item in objects if not _belongs(item, self.record)), None):
            name = f"{foreign['metadata'].get('namespace') or ''}/{describe_name(foreign)}"
            raise _make_unusable(self.record, f"it holds {foreign['kind']} `{name}`, which is not an object of this job")
        return self._prepare(target, objects, launch)

    def change_images(self, job: PreparedJob, change: ImageChange | None) -> PreparedJob:
        """Return the job with its training image changed."""
        if change is None:
            return job
        objects = restore_objects(self.manifest, previous_launch=self.record.launch, launch=job.launch)
        return self._prepare(job.target, replace_image(objects, change), job.launch)

    def _prepare(self, target: Target, objects: Sequence[JsonObject], launch: str) -> PreparedJob:
        return PreparedJob(
            name=self.record.name,
            launch=launch,
            target=target.change(namespace=self.record.namespace),
            compiled=add_record(objects, launch=launch),
            resolved=None,
        )


def _belongs(item: JsonObject, record: JobSnapshot) -> bool:
    """Return whether kfjob could have created an object for the recorded job."""
    name, namespace = item["metadata"].get("name"), item["metadata"].get("namespace")
    is_other_job = is_job(item) and name != record.name
    return is_creatable(item) and namespace == record.namespace and not is_other_job


def parse_recorded_spec(record: JobSnapshot, text: str) -> JobSpec:
    """Return the recorded spec. Everyone with access to the job may have edited the record.

    Raises:
        BackendError: it is not a spec of this version, or the spec of another job.
    """
    try:
        spec = JobSpec.model_validate_json(text)
    except SpecError as err:
        raise _make_unusable(record, _list_problems(err.problems)) from err
    if problems := list(find_kind(record.job_kind).find_override_problems(spec.overrides)):
        raise _make_unusable(record, _list_problems(problems))
    if spec.name != record.name:
        raise _make_unusable(record, f"it is the spec of `{spec.name}`")
    return spec


def _list_problems(problems: Sequence[Problem]) -> str:
    lines = [f"`{problem.path}`: {problem.title}" if problem.path else problem.title for problem in problems]
    return "\n".join(lines[:_SHOWN_PROBLEMS])


def _make_unusable(record: JobSnapshot, cause: str) -> BackendError:
    """Return the error for a record that cannot be used."""
    return BackendError(
        f"the recorded spec of job `{record.name[:_SHOWN_CHARACTERS]}` cannot be used",
        cause=cause[:_SHOWN_CHARACTERS],
        hint="the job was not changed; run `kfjob stop` and submit the job again from its file",
    )
