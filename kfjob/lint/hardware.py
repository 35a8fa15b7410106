"""Rules for GPUs, network adapters and shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.instances import list_network_variables
from kfjob.text import plural
from kfjob.units import GIB, parse_quantity

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path in the pod
_BF16_CAPABILITY = "compute capability 8.0"
_BF16_OPTION = re.compile(r"--?(bf16(=(1|true))?|[\w-]*(precision|dtype)=?bf(loat)?16(-\w+)?)", re.IGNORECASE)


@rule("exceeds-instance", "error")
def more_than_the_instance(job: Job) -> Iterator[Violation]:
    """A pod requests no more devices, CPUs and memory than its instance type has.

    No node can run such a pod. It stays Pending, with `Insufficient vpc.amazonaws.com/efa` or the like in its events.
    """
    instance, resources = job.plan.instance, job.plan.resources
    if instance is None:
        return
    for name, device, count, limit in (
        ("gpus", "GPU", resources.gpus, instance.gpus),
        ("efa", "EFA adapter", resources.efa, instance.efa),
        ("neuron", "Neuron device", resources.neuron, instance.neuron),
    ):
        if count > limit:
            yield Violation(
                path=f"resources.{name}",
                message=f"a pod requests {plural(count, device)}, and {instance.name} has {limit or 'none'}",
                hint=f"set `resources.{name}: {limit}`, or use another `instance`",
            )
    if resources.cpu and parse_quantity(resources.cpu) > instance.vcpus:
        yield _too_much("cpu", f"{resources.cpu} CPUs", f"{instance.name} has {instance.vcpus}")
    if resources.memory and parse_quantity(resources.memory) > instance.memory * GIB:
        yield _too_much("memory", f"{resources.memory} of memory", f"{instance.name} has {instance.memory}Gi")


def _too_much(name: str, request: str, limit: str) -> Violation:
    hint = "request less: the services of the node need some too"
    return Violation(path=f"resources.{name}", message=f"a pod requests {request}, and {limit}", hint=hint)


@rule("processes-and-gpus", "error")
def processes_and_gpus(job: Job) -> Iterator[Violation]:
    """A node has at least one GPU for each training process.

    Each process uses the GPU of its local rank, so a process without a GPU ends with `CUDA error: invalid device ordinal`. With
    `processes_per_node: gpu` and no GPU, torchrun ends with `Cuda is not available`.
    """
    gpus, (path, processes) = job.plan.resources.gpus, _processes(job)
    if gpus and processes.isdecimal() and int(processes) > gpus:
        message = f"each node has {plural(int(processes), 'process', 'processes')}, but {plural(gpus, 'GPU')}"
        yield Violation(path=path, message=message, hint=f"set `{path}: {gpus}` or remove it")
    elif processes == "gpu" and not gpus:
        hint = "set `resources.gpus` or `instance`"
        message = "`gpu` means one process for each GPU, and the job requests no GPU"
        yield Violation(path="processes_per_node", message=message, hint=hint)


@rule("idle-gpus", "warning")
def idle_gpus(job: Job) -> Iterator[Violation]:
    """Every requested GPU has a process.

    GPUs without a process are reserved and paid for, but never used.
    """
    gpus, (path, processes) = job.plan.resources.gpus, _processes(job)
    if gpus and processes.isdecimal() and int(processes) < gpus:
        message = f"each pod has {plural(gpus, 'GPU')}, but {plural(int(processes), 'process', 'processes')} with one GPU each"
        yield Violation(path=path, message=message, hint=f"set `{path}: {gpus}`")


def _processes(job: Job) -> tuple[str, str]:
    """Return the field that sets the number of processes on a node, and its value; "" if the program decides."""
    if job.plan.launcher != "python":
        return "processes_per_node", job.plan.processes_per_node
    return "train.spawn", str(job.spec.train.spawn or "") if job.spec.train else ""


@rule("network-variables", "warning")
def network_variables(job: Job) -> Iterator[Violation]:
    """FI_* variables are set only for p4d, or for an image with an old libfabric.

    libfabric 1.18 and aws-ofi-nccl 1.7 find the adapters and use RDMA by themselves. `FI_PROVIDER=efa` in a pod without an
    adapter leaves NCCL without a network.
    """
    instance, efa = job.plan.instance, job.plan.resources.efa
    expected = list_network_variables(instance, efa, job.spec.network_profile) if instance else {}
    for name in (name for name in job.spec.env if name.startswith("FI_") and name not in (*expected, "FI_EFA_USE_HUGE_PAGE")):
        if name == "FI_PROVIDER" and job.env.get(name) == "efa" and not efa:
            hint = "set `resources.efa`, or remove the variable"
            yield Violation(path=f"env.{name}", message="`FI_PROVIDER=efa` is set, and the pods request no adapter", hint=hint)
        elif instance and instance.family not in ("p4d", "p4de") and job.spec.network_profile == "auto":
            yield Violation(
                path=f"env.{name}",
                message=f"`{name}` is for p4d or an image with an old libfabric, and the nodes are {instance.name}",
                hint="remove it, or set `network_profile: older` if the image has a libfabric older than 1.18",
            )


@rule("unsupported-precision", "warning")
def precision_of_the_card(job: Job) -> Iterator[Violation]:
    """A job uses bf16 only on GPUs that support it.

    V100 and T4 (compute capability below 8.0) compute bf16 in software, which is many times slower than fp16, or refuse it.
    """
    instance = job.plan.instance
    if instance is None or instance.has_bf16:
        return
    if job.spec.train and job.spec.train.precision.startswith("bf16"):
        path, option = "train.precision", "`precision: bf16`"
    elif flag := next((word for word in job.words if job.spec.command and _BF16_OPTION.fullmatch(word)), None):
        path, option = "command", f"`{flag}`"
    else:
        return
    yield Violation(
        path=path,
        message=f"{option} is set, and the {instance.accelerator} of {instance.name} does not support bf16",
        hint=f"use fp32 (or fp16 with loss scaling), or a GPU with {_BF16_CAPABILITY} (A100, A10G, L4 and newer)",
    )


@rule("shared-memory", "warning")
def shared_memory(job: Job) -> Iterator[Violation]:
    """The pods have a volume at /dev/shm.

    Without it they have the 64 MiB of the container runtime. NCCL within a node and data loaders with workers need more, and
    end with `unable to open shared memory object`, or with `Bus error` in the middle of an epoch.
    """
    if job.processes == 1 and not job.plan.resources.gpus:
        return
    for container in job.training_containers:
        if not any(mount.get("mountPath") == _SHARED_MEMORY for mount in container.get("volumeMounts") or ()):
            path = "shared_memory" if job.plan.shared_memory is None else "overrides"
            hint = "remove `shared_memory`, or set a size"
            yield Violation(path=path, message="the pods have 64 MiB of shared memory", hint=hint)
            return


@rule("shared-memory-size", "warning")
def shared_memory_size(job: Job) -> Iterator[Violation]:
    """The shared memory is smaller than the pod's memory.

    Data in shared memory counts as memory of the pod. If the volume is as large as the limit, the pod is killed (OOMKilled)
    before the volume is full.
    """
    memory, shared = job.plan.resources.memory, job.plan.shared_memory
    if memory and shared and parse_quantity(shared) >= parse_quantity(memory):
        yield Violation(
            path="shared_memory",
            message=f"a pod has {shared} of shared memory, but {memory} of memory",
            hint="remove `shared_memory`: the default is half of the memory",
        )
