"""The catalogue of instance types: the hardware of one node, and the environment variables for its network.

data/instances.json holds the numbers, each row with its source. `EC2` is the answer of DescribeInstanceTypes (for the memory
and the cores of Trainium2, AWS Neuron's pages on Trn2). `Karpenter` is the list of types in AWS's reference of Karpenter
(aws/karpenter-provider-aws 1d92708, instance-types.md), for types that have only CPUs. Rows without a source are published
numbers that nobody compared with EC2; kfjob requests no EFA for them.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from kfjob.base.parsing import parse_json
from kfjob.base.text import find_similar
from kfjob.trainspec.hardware import FLOAT8_CAPABILITY

HYPERPOD_PREFIX = "ml."

Profile = Literal["auto", "older", "current", "none"]


class Instance(Struct, frozen=True, kw_only=True):
    """An instance type of EC2."""

    name: str
    accelerator: str  # A100, H100, Trainium …; empty for a type that has only CPUs
    gpus: int  # NVIDIA GPUs
    gpu_memory: int  # GiB of each GPU or Neuron device
    neuron: int  # Neuron devices
    neuron_cores: int  # logical cores of each Neuron device, each for one process
    efa: int  # largest number of network interfaces with EFA
    vcpus: int
    memory: int  # GiB of the host
    capability: str  # CUDA compute capability; empty without a GPU
    source: str  # where the numbers come from; empty: not compared with EC2

    @property
    def checked(self) -> bool:
        """Whether the numbers are those of EC2 or of a list that AWS derives from it."""
        return bool(self.source)

    @property
    def default_efa(self) -> int:
        """EFA interfaces that a job of several nodes requests: all of a type that is made to train on several nodes."""
        return self.efa if self.checked and self.efa > 1 and self.name.startswith(("p", "trn")) else 0

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

    @property
    def has_fp8(self) -> bool:
        """Whether the GPU multiplies matrices in fp8; False without a GPU."""
        return bool(self.capability) and tuple(map(int, self.capability.split("."))) >= FLOAT8_CAPABILITY


@cache
def load_catalogue() -> MappingProxyType[str, Instance]:
    """Return the instance types that kfjob brings, by name."""
    rows = parse_json(resources.files("kfjob.spec").joinpath("data", "instances.json").read_text("utf-8"))
    return MappingProxyType({row["name"]: Instance(**row) for row in rows})


def find_instance(name: str) -> Instance | None:
    """Return the instance type of a name; HyperPod's names (`ml.p5.48xlarge`) are those of EC2 with a prefix."""
    return load_catalogue().get(name.removeprefix(HYPERPOD_PREFIX))


_GENERATION = r"[a-z]+[0-9]+"


def suggest_instance(name: str) -> str | None:
    """Return the most similar name of the same class and generation, such as `p6`; None if no name is similar."""
    plain_name = name.removeprefix(HYPERPOD_PREFIX)
    generation = re.match(_GENERATION, plain_name)
    names = [other for other in load_catalogue() if generation and other.startswith(generation[0])]
    return find_similar(plain_name, names)


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
_NCCL = MappingProxyType(
    {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": ("2000", "records the last collectives of each rank, which explain a hang"),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": (
            "1",
            "writes these records to a file when a collective times out (older torch does not)",
        ),
    }
)
"""The flight recorder. torch 2.15 still reads these names, older versions know no others (docs.pytorch.org, NCCL variables)."""
_SEVERAL_NODES = MappingProxyType(
    {"NCCL_SOCKET_IFNAME": ("^docker,lo,veth", "keeps NCCL's bootstrap off interfaces that other nodes cannot reach")}
)
"""As in AWS's samples for EKS; with `host_network` a node has such interfaces."""


def list_nccl_variables(*, gpus: int, nodes: int, profile: Profile) -> MappingProxyType[str, tuple[str, str]]:
    """Return the variables for NCCL that depend on no instance type, each with its value and the reason for it."""
    if profile == "none" or not gpus or gpus * nodes == 1:
        return MappingProxyType({})
    return MappingProxyType({**_NCCL, **(_SEVERAL_NODES if nodes > 1 else {})})


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
