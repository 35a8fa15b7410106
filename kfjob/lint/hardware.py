"""Rules about GPUs, adapters and what is asked of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.instances import list_network_variables
from kfjob.units import parse_quantity

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path in the pod
_FIRST_WITH_BF16 = "compute capability 8.0"
_ASKS_FOR_BF16 = re.compile(r"--?(bf16(=(1|true))?|[\w-]*(precision|dtype)=?bf(loat)?16(-\w+)?)", re.IGNORECASE)


@rule("more-than-the-instance", "error")
def more_than_the_instance(job: Job) -> Iterator[Violation]:
    """No more GPUs, EFA adapters or Neuron devices than a node of that type has.

    No node can hold such a pod: it stays Pending for ever, with `Insufficient vpc.amazonaws.com/efa` in its events.
    """
    instance, wanted = job.plan.instance, job.plan.resources
    if instance is None:
        return
    for name, said, has in (
        ("gpus", wanted.gpus, instance.gpus),
        ("efa", wanted.efa, instance.efa),
        ("neuron", wanted.neuron, instance.neuron),
    ):
        if said > has:
            what = {"gpus": "GPUs", "efa": "EFA adapters", "neuron": "Neuron devices"}[name]
            yield Violation(
                path=f"resources.{name}",
                message=f"{said} {what} in a pod, and {instance.name} has {has or 'none'}",
                hint=f"set `resources.{name}: {has}`, or take another `instance`",
            )
    if wanted.cpu and parse_quantity(wanted.cpu) > instance.vcpus:
        yield _too_much("cpu", f"{wanted.cpu} cores", f"{instance.name} has {instance.vcpus}")
    if wanted.memory and parse_quantity(wanted.memory) > instance.memory * 2**30:
        yield _too_much("memory", wanted.memory, f"{instance.name} has {instance.memory}Gi")


def _too_much(name: str, said: str, has: str) -> Violation:
    return Violation(
        path=f"resources.{name}", message=f"{said} in a pod, and {has}", hint="the node's own services need some too"
    )


@rule("processes-and-gpus", "error")
def processes_and_gpus(job: Job) -> Iterator[Violation]:
    """No more training processes than GPUs.

    Each process takes the GPU of its local rank: one too many ends with `CUDA error: invalid device ordinal`. `gpu` without a
    GPU ends torchrun with `Cuda is not available`.
    """
    gpus, (path, said) = job.plan.resources.gpus, _started(job)
    if gpus and said.isdecimal() and int(said) > gpus:
        message = f"{said} processes on each node, and {gpus} GPU{'s' if gpus > 1 else ''}"
        yield Violation(path=path, message=message, hint=f"set `{path}: {gpus}` or leave it out")
    elif said == "gpu" and not gpus:
        hint = "set `resources.gpus` or `instance`"
        yield Violation(path="processes_per_node", message="one process for each GPU, and no GPU is asked for", hint=hint)


@rule("idle-gpus", "warning")
def idle_gpus(job: Job) -> Iterator[Violation]:
    """Every GPU that is asked for has a process.

    The others are reserved, paid for and never used.
    """
    gpus, (path, said) = job.plan.resources.gpus, _started(job)
    if gpus and said.isdecimal() and int(said) < gpus:
        message = f"{gpus} GPUs in each pod, and {said} process{'es' if said != '1' else ''} that use one each"
        yield Violation(path=path, message=message, hint=f"set `{path}: {gpus}`")


def _started(job: Job) -> tuple[str, str]:
    """Which field says how many processes a node has, and what it says; "" where the program decides by itself."""
    if job.plan.launcher != "python":
        return "processes_per_node", job.plan.processes_per_node
    return "train.spawn", str(job.spec.train.spawn or "") if job.spec.train else ""


@rule("network-variables", "warning")
def network_variables(job: Job) -> Iterator[Violation]:
    """FI_* variables belong to p4d, unless the image has an old libfabric.

    libfabric 1.18 and aws-ofi-nccl 1.7 find the adapters and use RDMA by themselves. `FI_PROVIDER=efa` where a pod has no
    adapter leaves NCCL without a network.
    """
    asked = (
        list_network_variables(job.plan.instance, job.plan.resources.efa, job.spec.network_profile) if job.plan.instance else {}
    )
    for name in (name for name in job.spec.env if name.startswith("FI_") and name not in (*asked, "FI_EFA_USE_HUGE_PAGE")):
        if name == "FI_PROVIDER" and job.env.get(name) == "efa" and not job.plan.resources.efa:
            hint = "set `resources.efa`, or remove the variable"
            yield Violation(path=f"env.{name}", message="libfabric is to use EFA, and the pods ask for no adapter", hint=hint)
        elif job.plan.instance and job.plan.instance.family not in ("p4d", "p4de") and job.spec.network_profile == "auto":
            yield Violation(
                path=f"env.{name}",
                message=f"`{name}` is for p4d or an image with an old libfabric, and the nodes are {job.plan.instance.name}",
                hint="remove it, or say `network_profile: older` if the image has a libfabric before 1.18",
            )


@rule("precision-of-the-card", "warning")
def precision_of_the_card(job: Job) -> Iterator[Violation]:
    """Precision bf16 on cards that have it.

    V100 and T4 (compute capability below 8.0) compute bf16 in software, many times slower than fp16, or refuse it.
    """
    instance = job.plan.instance
    if instance is None or instance.has_bf16:
        return
    if job.spec.train and job.spec.train.precision.startswith("bf16"):
        path, said = "train.precision", "`precision: bf16`"
    elif found := next((word for word in job.words if job.spec.command and _ASKS_FOR_BF16.fullmatch(word)), None):
        path, said = "command", f"`{found}`"
    else:
        return
    yield Violation(
        path=path,
        message=f"{said}, and the {instance.accelerator} of {instance.name} has no bf16",
        hint=f"use fp32 (or fp16 with loss scaling), or a card with {_FIRST_WITH_BF16} (A100, A10G, L4 and later)",
    )


@rule("shared-memory", "warning")
def shared_memory(job: Job) -> Iterator[Violation]:
    """A volume at /dev/shm.

    A container runtime gives 64 MiB. NCCL within a node and data loaders with workers need more: `unable to open shared memory
    object`, or `Bus error` in the middle of an epoch.
    """
    if job.processes == 1 and not job.plan.resources.gpus:
        return
    for container in job.training:
        if not any(mount.get("mountPath") == _SHARED_MEMORY for mount in container.get("volumeMounts") or ()):
            path = "shared_memory" if job.plan.shared_memory is None else "overrides"
            hint = "leave `shared_memory` out, or give its size"
            yield Violation(path=path, message="the pods have 64 MiB of shared memory", hint=hint)
            return


@rule("shared-memory-size", "warning")
def shared_memory_size(job: Job) -> Iterator[Violation]:
    """What is in /dev/shm counts as the pod's memory.

    A volume as large as the limit lets the pod be killed (OOMKilled) before the volume is full.
    """
    memory, shared = job.plan.resources.memory, job.plan.shared_memory
    if memory and shared and parse_quantity(shared) >= parse_quantity(memory):
        yield Violation(
            path="shared_memory",
            message=f"{shared} of shared memory in a pod with {memory} of memory",
            hint="leave `shared_memory` out: half of the memory",
        )
