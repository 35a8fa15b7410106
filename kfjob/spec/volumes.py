"""Storage that the pods of a job see."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kfjob.spec.base import SpecModel
from kfjob.spec.fields import AbsolutePath, DnsLabel, ObjectName, Quantity, field_error

KINDS = ("pvc", "fsx", "efs", "host_path", "empty_dir", "config_map", "secret")


class Volume(SpecModel):
    """Storage that every pod sees under the same path. Exactly one of the kinds."""

    name: DnsLabel = Field(description="a DNS-1123 label")
    mount_path: AbsolutePath = Field(description="absolute path in the pod")
    read_only: bool = False
    sub_path: str | None = Field(default=None, description="a folder in the volume, instead of its root")
    pvc: ObjectName | None = Field(default=None, description="a PersistentVolumeClaim; on this machine a folder of that name")
    fsx: ObjectName | None = Field(default=None, description="a claim on FSx for Lustre: shared by all nodes")
    efs: ObjectName | None = Field(default=None, description="a claim on EFS: shared by all nodes")
    host_path: AbsolutePath | None = Field(default=None, description="a folder of the node; on this machine that very folder")
    empty_dir: bool = Field(default=False, description="an empty folder for each pod, gone with it")
    size: Quantity | None = Field(default=None, description="of an `empty_dir`, at most")
    in_memory: bool = Field(default=False, description="an `empty_dir` in memory")
    config_map: ObjectName | None = None
    secret: ObjectName | None = None

    @property
    def claim(self) -> str | None:
        """The PersistentVolumeClaim, of whatever file system."""
        return self.pvc or self.fsx or self.efs

    @property
    def kind(self) -> str:
        """Which of the kinds."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def is_shared(self) -> bool:
        """Whether all nodes see the same files, as far as the spec says; a plain `pvc` may or may not."""
        return bool(self.fsx or self.efs)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(bool(getattr(self, kind)) for kind in KINDS) != 1:
            kinds = ", ".join(f"`{kind}`" for kind in KINDS)
            raise field_error("volume_kind", f"volume `{self.name}` needs exactly one of {kinds}")
        if not self.empty_dir and (self.size or self.in_memory):
            raise field_error("volume_size", f"`size` and `in_memory` are of an `empty_dir`, and volume `{self.name}` is none")
        if self.sub_path is not None and (self.sub_path.startswith("/") or ".." in self.sub_path.split("/")):
            raise field_error("sub_path", f"`{self.sub_path}` is not a path inside the volume", path="sub_path")
        return self
