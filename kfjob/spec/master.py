"""What the Master's pod has instead of what the Workers have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from kfjob.base.errors import SpecError
from kfjob.spec.fields import Arguments, Command, ObjectName, SharedMemory
from kfjob.spec.pod import EnvEntry, EnvFromSource, Pod, Resources
from kfjob.spec.scheduling import Placement
from kfjob.spec.volumes import Volume
from kfjob.validation.models import FieldProblem, SpecModel

if TYPE_CHECKING:
    from kfjob.spec.job import JobSpec  # which imports this module

_DIRECT = frozenset({"scheduling", "restart_policy"})
"""Fields of `MasterPod` that replace only a part of the job's field."""


class MasterPod(SpecModel):
    """What the Master's pod has instead of what the Workers have.

    A field that is set replaces the job's field of the same name as a whole: `volumes: []` means no volumes. The Master has
    everything else as the Workers have it.
    """

    image: str | None = Field(default=None, description="Container image of the Master")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="Image pull policy of the Master"
    )
    image_pull_secrets: tuple[ObjectName, ...] | None = Field(
        default=None, description="Secrets with the logins of image registries for the Master"
    )
    instance: str | None = Field(default=None, description="Instance type of the Master's node")
    command: Command | None = Field(
        default=None, description="Command of the Master; an empty list stands for the image's own entry point"
    )
    args: Arguments | None = Field(default=None, description="Arguments of the Master")
    env: dict[str, EnvEntry] | None = Field(default=None, description="Environment variables of the Master")
    env_from: tuple[EnvFromSource, ...] | None = Field(
        default=None, description="Secrets and ConfigMaps whose keys become variables of the Master"
    )
    resources: Resources | None = Field(default=None, description="Resources of the Master; an empty mapping requests nothing")
    volumes: tuple[Volume, ...] | None = Field(default=None, description="Storage that the Master mounts")
    shared_memory: SharedMemory | None = Field(default=None, description="Size of /dev/shm in the Master")
    service_account: ObjectName | None = Field(
        default=None, description="Service account of the Master; `default` is the one of the namespace"
    )
    scheduling: Placement | None = Field(default=None, description="Placement of the Master")
    pod: Pod | None = Field(default=None, description="Other settings of the Master's pod")
    restart_policy: Literal["Never", "OnFailure", "Always", "ExitCode"] | None = Field(
        default=None, description="Restart policy of the Master, instead of `restarts.policy`"
    )


MasterField = Annotated[
    Annotated[bool, Tag("master:switch")] | Annotated[MasterPod, Tag("master:section")],
    Discriminator(lambda value: "master:section" if isinstance(value, dict | MasterPod) else "master:switch"),
]
"""Whether the job has a Master, or what the Master has instead of the Workers."""


def make_master_spec(spec: JobSpec, **fields: Any) -> JobSpec | None:
    """Return the spec of a job whose pods are all as the Master is, with other `fields`; None if the pods are equal.

    Raises:
        SpecError: the fields of the Master do not fit together, or with the job's.
    """
    if not isinstance(spec.master, MasterPod):
        return None
    sections = {name: getattr(spec.master, name) for name in spec.master.model_fields_set}
    sections = {name: value for name, value in sections.items() if value is not None}
    own = {name: value for name, value in sections.items() if name not in _DIRECT}
    if (placement := sections.get("scheduling")) is not None:
        of_job = spec.scheduling.model_fields_set - Placement.model_fields.keys()
        job_fields = {name: getattr(spec.scheduling, name) for name in of_job}
        placed = {name: getattr(placement, name) for name in placement.model_fields_set}
        own["scheduling"] = type(spec.scheduling)(**job_fields, **placed)
    if policy := sections.get("restart_policy"):
        own["restarts"] = spec.restarts.model_copy(update={"policy": policy})
    job = {name: getattr(spec, name) for name in spec.model_fields_set}
    return type(spec).model_validate(job | own | {"master": True} | fields)


def find_master_problems(spec: JobSpec) -> list[FieldProblem]:
    """Return the problems of the Master's fields together with the job's."""
    try:
        make_master_spec(spec)
    except SpecError as err:
        return [FieldProblem(field=get_master_path(p.path), title=p.title, detail=p.detail, hint=p.hint) for p in err.problems]
    return []


def get_master_path(path: str) -> str:
    """Return where the spec has a field of the Master's own spec."""
    if path == "restarts.policy":
        return "master.restart_policy"
    return f"master.{path}" if path.partition(".")[0] in MasterPod.model_fields else "master"
