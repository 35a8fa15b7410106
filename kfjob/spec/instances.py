"""The catalogue of accelerator instances: what one node has, and what its network wants to be told.

Numbers are in data/instances.json. `checked` marks the rows whose GPUs and EFA interfaces were checked;
the others are published numbers as remembered, and no EFA is asked for on their word. `kfjob instances --refresh` asks EC2.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

HYPERPOD_PREFIX = "ml."

Profile = Literal["auto", "older", "current", "none"]


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One instance type."""

    name: str
    accelerator: str  # A100, H100, Trainium …
    gpus: int  # NVIDIA GPUs
    gpu_memory: int  # of each, GiB
    neuron: int  # Neuron devices
    efa: int  # network interfaces with EFA, at most
    vcpus: int
    memory: int  # of the host, GiB
    capability: str  # CUDA compute capability, "" without a GPU
    checked: bool

    @property
    def family(self) -> str:
        """`p4d` of `p4d.24xlarge`."""
        return self.name.partition(".")[0]

    @property
    def architecture(self) -> str:
        """Of its processor, as Kubernetes calls it: Graviton (`g5g`, `c7gn`) and Grace (`p6e-gb200`) are Arm."""
        return "arm64" if re.fullmatch(r"[a-z]+\d+[a-z]*g[a-z]*|.*-gb\d+", self.family) else "amd64"

    @property
    def has_bf16(self) -> bool:
        """Whether the card computes in bf16 (compute capability 8.0 and up; Trainium)."""
        return not self.capability or float(self.capability) >= 8  # noqa: PLR2004 - Ampere


@cache
def load_catalogue() -> MappingProxyType[str, Instance]:
    """All instance types, by name."""
    rows = json.loads(resources.files("kfjob.spec").joinpath("data", "instances.json").read_text("utf-8"))
    return MappingProxyType({row["name"]: Instance(**row) for row in rows})


def find_instance(name: str) -> Instance | None:
    """The instance type; HyperPod's names (`ml.p5.48xlarge`) are those of EC2 with a prefix."""
    return load_catalogue().get(name.removeprefix(HYPERPOD_PREFIX))


def suggest_instance(name: str) -> str | None:
    """The name in the catalogue that is most like it."""
    found = difflib.get_close_matches(name.removeprefix(HYPERPOD_PREFIX), load_catalogue(), n=1)
    return found[0] if found else None


_OLDER = MappingProxyType(
    {
        "FI_PROVIDER": ("efa", "libfabric is to use EFA"),
        "FI_EFA_USE_DEVICE_RDMA": ("1", "GPUDirect RDMA, which libfabric before 1.18 does not use by itself"),
    }
)
_CURRENT = MappingProxyType({"FI_EFA_USE_HUGE_PAGE": ("0", "data loaders fork, and huge pages make that fail")})
_NO_EFA = MappingProxyType(
    {"NCCL_SHM_USE_CUDA_MEMCPY": ("1", "without EFA and NVLink, copies through shared memory are faster")}
)


def list_network_variables(instance: Instance, efa: int, profile: Profile) -> MappingProxyType[str, tuple[str, str]]:
    """Variables for libfabric and NCCL, each with its reason.

    `auto` sets FI_* on p4d and p4de only: later images (libfabric 1.18, aws-ofi-nccl 1.7 and up) find the rest by themselves.
    """
    if profile == "none":
        return MappingProxyType({})
    if efa and (profile == "older" or (profile == "auto" and instance.family in ("p4d", "p4de"))):
        return _OLDER
    if efa and profile == "current":
        return _CURRENT
    if not efa and instance.family in ("g5", "g6") and instance.gpus > 1:
        return _NO_EFA
    return MappingProxyType({})
