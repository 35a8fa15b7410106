"""Rules for memory: what the model needs, what the nodes have, and which changes make the model fit."""

from __future__ import annotations

from collections.abc import Iterator

from kfjob.base.units import GIB, format_gib, parse_quantity
from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.plan import JobPlan
from kfjob.trainspec.defaults import Device, choose_defaults
from kfjob.trainspec.memory import RESERVED, MemoryEstimate, estimate_memory
from kfjob.trainspec.memory_changes import CHANGES
from kfjob.trainspec.memory_setup import MemorySetup, make_setup
from kfjob.trainspec.model_shapes import count_parameters


def setup(job: Job, *, nodes: int = 0) -> MemorySetup | None:
    """Return what decides on memory, with the smallest number of nodes or with `nodes`; None if the spec does not tell it."""
    if job.spec.train is None or job.processes is None:
        return None
    nodes = nodes or job.spec.min_nodes
    world_size, local_world_size = nodes * job.processes, job.processes
    device = find_device(job.plan)
    train = choose_defaults(job.spec.train, device, world_size=world_size, local_world_size=local_world_size).spec
    return make_setup(train, world_size=world_size, local_world_size=local_world_size)


@rule("parameter-memory", "error")
def parameter_memory(job: Job) -> Iterator[Violation]:
    """A rank's part of the parameters alone fits into its GPU, or without GPUs into its part of the pod's memory.

    No other setting of the training makes such a model fit. It needs more nodes, larger GPUs, or a strategy that shards the
    parameters over more ranks.
    """
    if violation := _find_excess(job):
        yield violation


def _find_excess(job: Job) -> Violation | None:
    """Return the violation of `parameter-memory`, with the largest number of nodes."""
    memory_setup, plan = setup(job, nodes=job.spec.max_nodes), job.plan
    limit, place = find_gpu_memory(plan), "a GPU"
    if memory_setup is None or job.processes is None:
        return None
    if not plan.resources.gpus and plan.resources.memory:
        limit, place = parse_quantity(plan.resources.memory) / job.processes, "its part of the pod's memory"
    size = estimate_memory(memory_setup).parameters
    if limit is None or size <= limit:
        return None
    count = f"{count_parameters(memory_setup.shape) / 1e9:,.1f} billion parameters"
    return Violation(
        path="train.model",
        message=f"the model has {count}: each process holds {format_gib(size)} of them, and {place} has {format_gib(limit)}",
        hint="use more nodes, or `strategy: fsdp` with `sharding: full`",
    )


@rule("gpu-memory", "warning")
def gpu_memory(job: Job) -> Iterator[Violation]:
    """The model fits into the memory of a GPU.

    kfjob estimates the memory from the model's shape: parameters, gradients and optimiser, activations, communication buffers,
    and an allowance for the rest. If it is too much, training ends with `CUDA out of memory` at the first step, or hours later
    at the longest sample.
    """
    memory_setup, limit = setup(job), find_gpu_memory(job.plan)
    if memory_setup is None or limit is None or _find_excess(job):
        return
    estimate = estimate_memory(memory_setup)
    needed = estimate.peak + RESERVED
    if needed > limit:
        gpu = f"a GPU of {job.plan.instance.name}" if job.plan.instance and not job.plan.resources.gpu_memory else "a GPU"
        yield Violation(
            path="train.model",
            message=f"training needs about {format_gib(needed)} on each GPU, and {gpu} has {format_gib(limit)}",
            detail=format_estimate(estimate, RESERVED),
            hint=suggest_changes(memory_setup, limit - RESERVED),
        )


@rule("host-memory", "warning")
def host_memory(job: Job) -> Iterator[Violation]:
    """The processes of a pod fit into its memory.

    Without GPUs the model is in the pod's memory too. A pod that exceeds its limit is killed (OOMKilled, exit code 137).
    """
    memory_setup, memory = setup(job), job.plan.resources.memory
    if memory_setup is None or memory is None or job.processes is None or _find_excess(job):
        return
    estimate = estimate_memory(memory_setup)
    per_process = estimate.host + (0 if job.plan.resources.gpus else estimate.peak)
    total = per_process * job.processes
    if total > parse_quantity(memory):
        subject = f"{job.processes} processes need" if job.processes > 1 else "the process needs"
        yield Violation(
            path="resources.memory",
            message=f"{subject} about {format_gib(total)}, and a pod has {memory}",
            detail=None if job.plan.resources.gpus else format_estimate(estimate, estimate.host),
            hint=f"set `resources.memory: {-(-int(total * 1.2) // GIB)}Gi`",
        )


def find_gpu_memory(plan: JobPlan) -> float | None:
    """Return the bytes of one GPU: the spec's, else the instance's; None if they are unknown."""
    memory, instance = plan.resources.gpu_memory, plan.instance
    if not plan.resources.gpus:
        return None
    if memory:
        return parse_quantity(memory)
    return instance.gpu_memory * GIB if instance and instance.gpu_memory else None


def find_device(plan: JobPlan) -> Device:
    """Return what the trainer's defaults depend on; the nodes know whether their images can compile."""
    if not plan.resources.gpus:
        return Device()
    return Device(kind="cuda", memory=int(find_gpu_memory(plan) or 0))


def format_estimate(estimate: MemoryEstimate, allowance: int) -> str:
    """Return the parts of an estimate, one on each line, and their peak."""
    rows = [*estimate.rows(), ("other (allowance)", allowance)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {size / GIB:8.2f} GiB" for name, size in rows if size]
    return "\n".join([*lines, f"{'at once'.ljust(width)}  {(estimate.peak + allowance) / GIB:8.2f} GiB"])


def suggest_changes(setup: MemorySetup, limit: float) -> str:
    """Return a hint: up to three changes that are each enough, else the combination of changes that is enough."""
    candidates = [change for step in CHANGES if (change := step(setup, limit))]
    enough = [f"{text} ({_needed(changed)})" for text, changed in candidates if estimate_memory(changed).peak <= limit]
    if enough:
        return f"it would fit with {', or with '.join(enough[:3])}"
    combined, texts = setup, []
    for step in CHANGES:
        if change := step(combined, limit):
            text, combined = change
            texts.append(text)
        if estimate_memory(combined).peak <= limit:
            return f"it would fit with {' and '.join(texts)} ({_needed(combined)})"
    return "use GPUs with more memory or a smaller model: the usual changes are not enough"


def _needed(setup: MemorySetup) -> str:
    return format_gib(estimate_memory(setup).peak + RESERVED)
