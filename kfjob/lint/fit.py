"""Will it fit? The memory that the model needs against what the nodes have, and what to change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kfjob.lint.job import Job
from kfjob.lint.rules import Violation, rule
from kfjob.spec.memory import RESERVED, MemoryEstimate, MemorySetup, estimate_memory, make_setup
from kfjob.units import GIB, parse_quantity

_MOST_TIMES = 64
"""More nodes than so many times what was asked for are no advice."""


def setup(job: Job) -> MemorySetup | None:
    """What decides on memory, with the fewest ranks that the job may have; None where it cannot be known from here."""
    if job.spec.train is None or job.processes is None:
        return None
    return make_setup(job.spec.train, world_size=job.plan.min_nodes * job.processes, local_world_size=job.processes)


@rule("gpu-memory", "warning")
def gpu_memory(job: Job) -> Iterator[Violation]:
    """The model fits into the memory of a GPU.

    An estimate from the model's shape (spec/memory.py says how, tests hold it against measured bytes): what stays, what a
    forward pass keeps, and what is gathered and exchanged, with an allowance for what no formula knows. Where it is too much,
    training ends with `CUDA out of memory` at the first step, or hours later at the longest sample.
    """
    needs, has = setup(job), _memory_of_a_gpu(job)
    if needs is None or has is None:
        return
    found = estimate_memory(needs)
    if found.peak + RESERVED > has:
        card = f"a GPU of {job.plan.instance.name}" if job.plan.instance and not job.plan.resources.gpu_memory else "one"
        yield Violation(
            path="train.model",
            message=f"needs about {_gib(found.peak + RESERVED)} on each GPU, and {card} has {_gib(has)}",
            detail=table(found, RESERVED),
            hint=advice(needs, has - RESERVED),
        )


@rule("host-memory", "warning")
def host_memory(job: Job) -> Iterator[Violation]:
    """The processes of a pod fit into its memory.

    Without GPUs everything is in the pod's own memory. A pod that takes more than its limit is killed (OOMKilled, exit code
    137).
    """
    needs, memory = setup(job), job.plan.resources.memory
    if needs is None or memory is None or job.processes is None:
        return
    found, has = estimate_memory(needs), parse_quantity(memory)
    each = found.host + (0 if job.plan.resources.gpus else found.peak)
    if each * job.processes > has:
        many = f"{job.processes} processes need" if job.processes > 1 else "the process needs"
        yield Violation(
            path="resources.memory",
            message=f"{many} about {_gib(each * job.processes)}, and a pod has {memory}",
            detail=None if job.plan.resources.gpus else table(found, found.host),
            hint=f"set `resources.memory: {-(-int(each * job.processes * 1.2) // GIB)}Gi`",
        )


def _memory_of_a_gpu(job: Job) -> float | None:
    """In bytes: what the spec says, else what the instance's cards have."""
    said, instance = job.plan.resources.gpu_memory, job.plan.instance
    if not job.plan.resources.gpus:
        return None
    if said:
        return parse_quantity(said)
    return instance.gpu_memory * GIB if instance and instance.gpu_memory else None


def table(found: MemoryEstimate, other: int) -> str:
    """The parts of an estimate, a line each."""
    rows = [*found.rows(), ("other (allowance)", other)]
    width = max(len(what) for what, _ in rows)
    lines = [f"{what.ljust(width)}  {size / GIB:8.2f} GiB" for what, size in rows if size]
    return "\n".join([*lines, f"{'at once'.ljust(width)}  {(found.peak + other) / GIB:8.2f} GiB"])


def advice(setup: MemorySetup, room: float) -> str:
    """What makes it fit: up to three single changes, else as many changes together as it takes."""
    tried = [change for step in _STEPS if (change := step(setup, room))]
    if alone := [f"{words} ({_needed(changed)})" for words, changed in tried if estimate_memory(changed).peak <= room]:
        return f"it would fit with {', or with '.join(alone[:3])}"
    together, said = setup, []
    for step in _STEPS:
        if change := step(together, room):
            words, together = change
            said.append(words)
        if estimate_memory(together).peak <= room:
            return f"it would fit with {' and '.join(said)} ({_needed(together)})"
    return "take GPUs with more memory or a smaller model: none of the usual changes is enough"


Change = tuple[str, MemorySetup]
_SHARDED = ("full", "shard_grad_op", "hybrid")


def _recompute(setup: MemorySetup, _room: float) -> Change | None:
    if setup.activation_checkpointing:
        return None
    return "`activation_checkpointing: true`", replace(setup, activation_checkpointing=True)


def _share(setup: MemorySetup, _room: float) -> Change | None:
    if setup.world_size == 1 or setup.scheme not in ("ddp", "shard_grad_op", "hybrid"):
        return None
    words = "`strategy: fsdp`" if setup.scheme == "ddp" else "`sharding: full`"
    return words, replace(setup, scheme="full")


def _smaller_batches(setup: MemorySetup, _room: float) -> Change | None:
    """The same global batch in more parts, where that costs nothing: FSDP keeps whole gradients between the parts."""
    if setup.micro_batch_size == 1:
        return None
    if setup.accumulation == 1 and setup.scheme in _SHARDED:
        return "`micro_batch_size: 1` (a smaller global batch)", replace(setup, micro_batch_size=1)
    fewer = replace(setup, micro_batch_size=1, accumulation=setup.accumulation * setup.micro_batch_size)
    return f"`micro_batch_size: 1` and `gradient_accumulation_steps: {fewer.accumulation}`", fewer


def _exchange_at_once(setup: MemorySetup, _room: float) -> Change | None:
    if setup.accumulation == 1 or setup.scheme not in _SHARDED:
        return None
    return "`gradient_accumulation_steps: 1` (a smaller global batch)", replace(setup, accumulation=1)


def _more_nodes(setup: MemorySetup, room: float) -> Change | None:
    """As few more as are enough."""
    nodes = setup.world_size // setup.local_world_size
    for times in range(2, _MOST_TIMES + 1) if setup.scheme == "full" else ():
        more = replace(setup, world_size=setup.world_size * times)
        if estimate_memory(more).peak <= room:
            return f"`nodes: {nodes * times}`", more
    return None


_STEPS = (_recompute, _share, _smaller_batches, _exchange_at_once, _more_nodes)
"""The cheapest first."""


def _needed(setup: MemorySetup) -> str:
    return _gib(estimate_memory(setup).peak + RESERVED)


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"
