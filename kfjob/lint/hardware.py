"""Rules for GPUs, network adapters and shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kfjob.base.text import plural
from kfjob.base.units import GIB, parse_quantity
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.objects.api_objects import EFA_RESOURCE
from kfjob.plan.resolve import count_processes
from kfjob.spec.instances import suggest_instance

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount path in the pod
_BF16_CAPABILITY = "compute capability 8.0"
_BF16_OPTION = r"(?i)--?(bf16(=(1|true))?|[\w-]*(precision|dtype)=?bf(loat)?16(-\w+)?)"


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
    """`FI_PROVIDER=efa` is set only in pods with an adapter.

    In a pod without an adapter, `FI_PROVIDER=efa` leaves NCCL and the Neuron runtime without a network.
    """
    if job.spec.env.get("FI_PROVIDER") == "efa" and not _has_efa(job):
        hint = "set `resources.efa`, or remove the variable"
        yield Violation(path="env.FI_PROVIDER", message="`FI_PROVIDER=efa` is set, and the pods request no adapter", hint=hint)


def _has_efa(job: Job) -> bool:
    resources = job.plan.resources
    amounts = {**resources.requests, **resources.limits}
    return bool(resources.efa or resources.efa_claim or amounts.get(EFA_RESOURCE))


@rule("unknown-instance", "warning")
def unknown_instance(job: Job) -> Iterator[Violation]:
    """The instance type is in the catalogue.

    For another type kfjob uses only the numbers of `resources`. It adds no GPUs, EFA adapters or network variables, and cannot
    check what fits on a node.
    """
    if job.spec.instance and job.plan.instance is None:
        similar = suggest_instance(job.spec.instance)
        yield Violation(
            path="instance",
            message=f"instance type `{job.spec.instance}` is not in the catalogue; kfjob uses only the numbers of `resources`",
            hint=f"did you mean `{similar}`?" if similar else "`kfjob instances` lists the catalogue",
        )


@rule("neuron-processes", "warning")
def neuron_processes(job: Job) -> Iterator[Violation]:
    """A Neuron node has one process for each core.

    A Neuron device has several cores: two on trn1, and four logical cores on trn2 (`NEURON_LOGICAL_NC_CONFIG=2`, its default).
    With fewer processes cores stay idle, and with more the runtime fails to get a core.
    """
    resources, processes = job.plan.resources, job.plan.processes_per_node
    if not resources.neuron or job.plan.launcher == "python":
        return
    if job.plan.instance is None or not job.plan.instance.neuron_cores:
        if job.spec.processes_per_node is None:
            message = f"each node has {plural(int(processes), 'process', 'processes')}, but a Neuron device has several cores"
            yield Violation(path="processes_per_node", message=message, hint="set `instance`, or `processes_per_node`")
        return
    count, _ = count_processes(job.spec, resources)
    if processes.isdecimal() and int(processes) != count:
        message = f"each node has {plural(int(processes), 'process', 'processes')}, but {count} Neuron cores"
        yield Violation(path="processes_per_node", message=message, hint=f"set `processes_per_node: {count}` or remove it")


@rule("unsupported-precision", "warning", local=True)
def precision_of_the_card(job: Job) -> Iterator[Violation]:
    """A job uses bf16 only on GPUs that support it.

    V100 and T4 (compute capability below 8.0) compute bf16 in software, which is many times slower than fp16, or refuse it.
    """
    instance = job.plan.instance
    if instance is None or instance.has_bf16:
        return
    if job.spec.train and job.spec.train.precision.startswith("bf16"):
        path, option = "train.precision", "`precision: bf16`"
    elif flag := next((word for word in job.words if job.spec.words and re.fullmatch(_BF16_OPTION, word)), None):
        path, option = job.program_field, f"`{flag}`"
    else:
        return
    yield Violation(
        path=path,
        message=f"{option} is set, and the {instance.accelerator} of {instance.name} does not support bf16",
        hint=f"use fp32 (or fp16 with loss scaling), or a GPU with {_BF16_CAPABILITY} (A100, A10G, L4 and newer)",
    )


@rule("unsupported-fp8", "error", local=True)
def fp8_of_the_card(job: Job) -> Iterator[Violation]:
    """A job with `precision: fp8` has GPUs that compute in fp8.

    GPUs below compute capability 8.9 (A100, A10G, V100, T4) do not, and the trainer refuses to start there. The CPU does
    not either, and a job on this machine that requests no GPU runs on it. `fp8_emulate` works everywhere.
    """
    instance, train, plan = job.plan.instance, job.spec.train, job.plan
    if train is None or train.precision != "fp8" or train.fp8_emulate:
        return
    is_given = plan.resources.gpus or not plan.processes_per_node.isdecimal() or "CUDA_VISIBLE_DEVICES" in job.spec.env
    if instance is None and plan.capabilities.runs_on_this_machine and not is_given:
        message = "`precision: fp8` is set, and the job requests no GPU"
        hint = "set `resources.gpus`, or use `precision: bf16`"
        yield Violation(path="train.precision", message=message, hint=hint)
    if instance and not instance.has_fp8:
        reason = f"the {instance.accelerator} of {instance.name} does not support fp8"
        reason = reason if instance.accelerator else f"{instance.name} has no GPU"
        message = f"`precision: fp8` is set, and {reason}"
        hint = "use `precision: bf16`, or an instance with L4, L40S, H100 or newer GPUs"
        yield Violation(path="train.precision", message=message, hint=hint)


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
            path = job.find_container_path(container, "volumeMounts")
            if not job.is_user_manifest and job.plan.shared_memory is None:
                path = "shared_memory"
            hint = "remove `shared_memory`, or set a size"
            if job.is_user_manifest:
                hint = "mount a volume `emptyDir: {medium: Memory}` at /dev/shm"
            yield Violation(path=path, message="the pods have 64 MiB of shared memory", hint=hint)
            return
