"""A job spec as the source of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.planning import plan_job
from kfjob.api.prepared import PreparedJob
from kfjob.api.settings import Settings
from kfjob.api.target import Target, find_target, make_target
from kfjob.base.common_types import JsonObject, Notify, ignore_notice
from kfjob.source.spec_text import LoadedSpec
from kfjob.spec.master import MasterPod

if TYPE_CHECKING:
    from kfjob.kinds.pod_changes import ImageChange


class SpecSource(Struct, frozen=True):
    """Implements `JobSource` for a spec."""

    loaded: LoadedSpec
    start_folder: str = ""
    """Where the agents of a local job start; "": the current folder."""
    noun: ClassVar[str] = "spec"

    def find_target(self, settings: Settings, *, notify: Notify, to_run: bool = False) -> Target:  # noqa: ARG002
        """Return the target that the settings select."""
        return find_target(settings, notify=notify)

    def render(self, settings: Settings, *, notify: Notify) -> tuple[JsonObject, ...]:
        """Return the objects that `submit` would send to a cluster.

        Raises:
            SpecError: every problem of the spec.
        """
        job = self.prepare(make_target(settings, "kubernetes"))
        job.check_findings(notify, to_print=True)
        return job.objects

    def prepare(
        self,
        target: Target,
        *,
        launch: str | None = None,
        notify: Notify = ignore_notice,  # noqa: ARG002 - a spec has its notices as warnings
    ) -> PreparedJob:
        """Plan the job; see `JobSource`."""
        return plan_job(self.loaded, target, launch=launch, start_folder=self.start_folder)

    def change_images(self, job: PreparedJob, change: ImageChange | None) -> PreparedJob:
        """Plan the same launch with the new images of the Master and the Workers."""
        if change is None:
            return job
        plan = job.plan
        images = {image: change(image) for image in dict.fromkeys(role.image for role in plan.roles)}
        update: dict[str, Any] = {"image": images[plan.image]}
        spec = self.loaded.spec
        if plan.master and isinstance(spec.master, MasterPod) and spec.master.image:
            update["master"] = spec.master.model_copy(update={"image": images[plan.master.image]})
        changed = LoadedSpec(spec.model_copy(update=update), self.loaded.positions, file_record=self.loaded.file_record)
        return replace(self, loaded=changed).prepare(job.target, launch=job.launch)
