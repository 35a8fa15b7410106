"""Storage that the pods of a job mount."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from kfjob.spec.fields import AbsolutePath, DnsLabel, FileMode, ObjectName, Size
from kfjob.validation.spec_model import SpecModel, field_error

_KINDS_OF_FIELDS = {
    "read_only_claim": ("pvc", "fsx", "efs"),
    "host_path_type": ("host_path",),
    "items": ("config_map", "secret"),
    "default_mode": ("config_map", "secret"),
    "optional": ("config_map", "secret"),
}
"""Fields that only volumes of some kinds have."""
KINDS = ("pvc", "fsx", "efs", "host_path", "empty_dir", "config_map", "secret")


class VolumeItem(SpecModel):
    """A key of a ConfigMap or a secret that becomes a file."""

    key: str = Field(description="Key in the ConfigMap or secret")
    path: str = Field(description="Path of the file in the volume")
    mode: FileMode | None = Field(default=None, description="Permissions of the file; default: `default_mode` of the volume")


class Volume(SpecModel):
    """Storage that every pod mounts at the same path. A volume has exactly one of the kinds.

    A volume that is mounted at several paths is in the list once for each, with the same name and source.
    """

    name: DnsLabel = Field(description="Name of the volume, a DNS-1123 label")
    mount_path: AbsolutePath = Field(description="Absolute path in the pod")
    read_only: bool = Field(
        default=False, description="Mount the volume read-only in the training container; the local backend does not"
    )
    sub_path: str | None = Field(default=None, description="Folder in the volume to mount, instead of its root")
    pvc: ObjectName | None = Field(
        default=None, description="PersistentVolumeClaim; the local backend uses a folder of that name"
    )
    fsx: ObjectName | None = Field(default=None, description="Claim on FSx for Lustre, which all nodes share")
    efs: ObjectName | None = Field(default=None, description="Claim on EFS, which all nodes share")
    host_path: AbsolutePath | None = Field(
        default=None, description="Folder of the node; the local backend uses that folder of this machine"
    )
    read_only_claim: bool = Field(
        default=False,
        description="Attach the claim read-only for all containers, as some drivers require for a ReadOnlyMany claim",
    )
    host_path_type: (
        Literal["DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"] | None
    ) = Field(default=None, description="What must exist at a `host_path`, or is created; default: no check")
    empty_dir: bool = Field(default=False, description="Empty folder that is deleted with its pod")
    size: Size | None = Field(default=None, description="Size limit of an `empty_dir`")
    in_memory: bool = Field(default=False, description="Keep an `empty_dir` in memory")
    config_map: ObjectName | None = Field(default=None, description="ConfigMap whose keys are files")
    secret: ObjectName | None = Field(default=None, description="Secret whose keys are files")
    items: tuple[VolumeItem, ...] = Field(
        default=(), description="Keys of the ConfigMap or secret that become files; default: all keys, under their names"
    )
    default_mode: FileMode | None = Field(
        default=None, description="Permissions of the files of a ConfigMap or secret; default: Kubernetes' own, 0644"
    )
    optional: bool = Field(default=False, description="Start the pod even if the ConfigMap, the secret or a key does not exist")

    @property
    def claim(self) -> str | None:
        """The name of the PersistentVolumeClaim; None for a volume of another kind."""
        return self.pvc or self.fsx or self.efs

    @property
    def kind(self) -> str:
        """The kind of the volume, one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def source(self) -> dict[str, Any]:
        """The fields that describe the volume itself, without those of its mount."""
        return self.model_dump(exclude={"mount_path", "sub_path", "read_only"})

    @property
    def is_shared(self) -> bool:
        """Whether the spec guarantees that all nodes see the same files; a plain `pvc` may or may not be shared."""
        return bool(self.fsx or self.efs)

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if sum(bool(getattr(self, kind)) for kind in KINDS) != 1:
            kinds = ", ".join(f"`{kind}`" for kind in KINDS)
            raise field_error("volume_kind", f"volume `{self.name}` needs exactly one of {kinds}")
        if not self.empty_dir and (self.size or self.in_memory):
            raise field_error("volume_size", f"volume `{self.name}` has `size` or `in_memory`, which need `empty_dir`")
        for name, fitting in _KINDS_OF_FIELDS.items():
            if getattr(self, name) and self.kind not in fitting:
                needed = " or ".join(f"`{kind}`" for kind in fitting)
                raise field_error("volume_field", f"volume `{self.name}` has `{name}`, which needs {needed}")
        if self.sub_path is not None and (self.sub_path.startswith("/") or ".." in self.sub_path.split("/")):
            raise field_error("sub_path", f"`{self.sub_path}` is not a path inside the volume", path="sub_path")
        return self
