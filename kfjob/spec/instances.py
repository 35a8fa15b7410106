"""The catalogue of accelerator instances: the hardware of one node, and the environment variables for its network.

data/instances.json holds the numbers. `checked` marks the rows whose GPUs and EFA interfaces were checked; the other rows are
published numbers from memory, and kfjob requests no EFA for them. `kfjob instances --refresh` queries EC2.
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
    """An instance type of EC2."""

    name: str
    accelerator: str  # A100, H100, Trainium …
    gpus: int  # NVIDIA GPUs
    gpu_memory: int  # GiB of each GPU
    neuron: int  # Neuron devices
    efa: int  # largest number of network interfaces with EFA
    vcpus: int
    memory: int  # GiB of the host
    capability: str  # CUDA compute capability; empty without a GPU
    checked: bool

    @property
    def family(self) -> str:
        """The instance family, such as `p4d` for `p4d.24xlarge`."""
        return self.name.partition(".")[0]

    @property
    def architecture(self) -> str:
        """The architecture of the processor in Kubernetes' terms: Graviton (`g5g`, `c7gn`) and Grace (`p6e-gb200`) are Arm."""
        return "arm64" if re.fullmatch(r"[a-z]+\d+[a-z]*g[a-z]*|.*-gb\d+", self.family) else "amd64"

    @property
    def has_bf16(self) -> bool:
        """Whether the accelerator supports bf16 (compute capability 8.0 or higher; Trainium)."""
        return not self.capability or float(self.capability) >= 8  # noqa: PLR2004 - Ampere


@cache
def load_catalogue() -> MappingProxyType[str, Instance]:
    """Return all instance types by name."""
    rows = json.loads(resources.files("kfjob.spec").joinpath("data", "instances.json").read_text("utf-8"))
    return MappingProxyType({row["name"]: Instance(**row) for row in rows})


def find_instance(name: str) -> Instance | None:
    """Return the instance type of a name; HyperPod's names (`ml.p5.48xlarge`) are those of EC2 with a prefix."""
    return load_catalogue().get(name.removeprefix(HYPERPOD_PREFIX))


def suggest_instance(name: str) -> str | None:
    """Return the most similar name in the catalogue; None if no name is similar."""
    similar = difflib.get_close_matches(name.removeprefix(HYPERPOD_PREFIX), load_catalogue(), n=1)
    return similar[0] if similar else None


_OLDER = MappingProxyType(
    {
        "FI_PROVIDER": ("efa", "makes libfabric use EFA"),
        "FI_EFA_USE_DEVICE_RDMA": ("1", "enables GPUDirect RDMA, which libfabric before 1.18 does not use by default"),
    }
)
_CURRENT = MappingProxyType({"FI_EFA_USE_HUGE_PAGE": ("0", "lets data loaders fork, which fails with huge pages")})
_NO_EFA = MappingProxyType(
    {"NCCL_SHM_USE_CUDA_MEMCPY": ("1", "is faster without EFA and NVLink: NCCL copies through shared memory")}
)


def list_network_variables(instance: Instance, efa: int, profile: Profile) -> MappingProxyType[str, tuple[str, str]]:
    """Return the variables for libfabric and NCCL, each with its value and the reason for it.

    `auto` sets FI_* on p4d and p4de only: newer images (libfabric 1.18, aws-ofi-nccl 1.7 or higher) detect the other settings.
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
