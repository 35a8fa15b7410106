"""What the Master's pod has instead of what the Workers have. Pure."""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from kfjob.spec.fields import Arguments, Command, ObjectName, SharedMemory
from kfjob.spec.pod import EnvEntry, EnvFromSource, Pod, Resources
from kfjob.spec.scheduling import Placement
from kfjob.spec.volumes import Volume
from kfjob.validation.spec_model import SpecModel


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
