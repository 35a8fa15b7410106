"""The optional packages that the trainer needs for a spec. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from kfjob.base.errors import Refused

if TYPE_CHECKING:  # the local backend reads jobs without pydantic
    from kfjob.trainspec.train_fields import TrainFields

_FILE_SYSTEMS = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "abfss": "adlfs"}
"""The package with which fsspec opens URLs of a scheme."""
_EXTRAS = {"tensorboard": "tracking", "wandb": "tracking", "deepspeed": "deepspeed", "s3fs": "s3"}
"""The extra of kfjob that installs a package."""


class Package(Struct, frozen=True):
    """An optional package, and the field of the trainer that asks for it."""

    name: str
    field: str
    setting: str = ""  # how messages name it; "": the field

    @property
    def is_extra(self) -> bool:
        """Whether kfjob's trainer can be installed without the package."""
        return self.name not in ("peft", "torchao")

    def make_missing(self, hint: str = "") -> Refused:
        """Return the error of an environment without the package; `hint` replaces how to install it."""
        if not hint:
            extra = _EXTRAS.get(self.name)
            checkout = f"; in a checkout, run `uv pip install --editable '.[{extra}]'`" if extra else ""
            hint = f"add `pip install {self.name}` to the Dockerfile{checkout}"
        return Refused(f"`{self.setting or self.field}` needs the package {self.name}", location=self.field, hint=hint)


def find_packages(spec: TrainFields) -> Iterator[Package]:
    """Yield the optional packages that a run with this spec imports."""
    if spec.tensorboard_dir:
        yield Package("tensorboard", "tensorboard_dir")
    if spec.wandb_project:
        yield Package("wandb", "wandb_project")
    if spec.strategy == "deepspeed":
        yield Package("deepspeed", "strategy", "strategy: deepspeed")
    if spec.lora:
        yield Package("peft", "lora")
    if spec.precision == "fp8":
        yield Package("torchao", "precision", "precision: fp8")
    if spec.lora and spec.lora.quantize:
        yield Package("torchao", "lora.quantize", f"lora.quantize: {spec.lora.quantize}")
    for field in ("checkpoint_dir", "resume"):
        scheme = (getattr(spec, field) or "").partition("://")[0]
        if scheme in _FILE_SYSTEMS and "://" in getattr(spec, field):
            yield Package(_FILE_SYSTEMS[scheme], field)
