"""Storage that the pods of a job mount."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kfjob.spec.base import SpecModel, field_error
from kfjob.spec.fields import AbsolutePath, DnsLabel, ObjectName, Size

KINDS = ("pvc", "fsx", "efs", "host_path", "empty_dir", "config_map", "secret")


class Volume(SpecModel):
    """Storage that every pod mounts at the same path. A volume has exactly one of the kinds."""

    name: DnsLabel = Field(description="Name of the volume, a DNS-1123 label")
    mount_path: AbsolutePath = Field(description="Absolute path in the pod")
    read_only: bool = Field(default=False, description="Mount the volume read-only")
    sub_path: str | None = Field(default=None, description="Folder in the volume to mount, instead of its root")
    pvc: ObjectName | None = Field(
        default=None, description="PersistentVolumeClaim; the local backend uses a folder of that name"
    )
    fsx: ObjectName | None = Field(default=None, description="Claim on FSx for Lustre, which all nodes share")
    efs: ObjectName | None = Field(default=None, description="Claim on EFS, which all nodes share")
    host_path: AbsolutePath | None = Field(
        default=None, description="Folder of the node; the local backend uses that folder of this machine"
    )
    empty_dir: bool = Field(default=False, description="Empty folder that is deleted with its pod")
    size: Size | None = Field(default=None, description="Size limit of an `empty_dir`")
    in_memory: bool = Field(default=False, description="Keep an `empty_dir` in memory")
    config_map: ObjectName | None = Field(default=None, description="ConfigMap whose keys are files")
    secret: ObjectName | None = Field(default=None, description="Secret whose keys are files")

    @property
    def claim(self) -> str | None:
        """The name of the PersistentVolumeClaim; None for a volume of another kind."""
        return self.pvc or self.fsx or self.efs

    @property
    def kind(self) -> str:
        """The kind of the volume, one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind))

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
        if self.sub_path is not None and (self.sub_path.startswith("/") or ".." in self.sub_path.split("/")):
            raise field_error("sub_path", f"`{self.sub_path}` is not a path inside the volume", path="sub_path")
        return self
