"""The memory rules: their messages, and that the suggested changes are enough."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from kfjob.base.units import GIB
from kfjob.lint.fit import suggest_changes
from kfjob.trainspec.memory import RESERVED, estimate_memory
from kfjob.trainspec.memory_setup import MemorySetup
from kfjob.trainspec.model_shapes import PRESETS
from tests.unit.lint import cases
from tests.unit.lint.test_rules import lint_job

SETUP = MemorySetup(
    shape=PRESETS["llama-3-8b"],
    scheme="full",
    precision="bf16",
    world_size=8,
    local_world_size=8,
    micro_batch_size=2,
    sequence_length=4096,
    loss_chunk=1024,
)


def memory(**train):
    job = {**cases.llama(**train), "instance": "p4d.24xlarge", "nodes": 1}
    (problem,) = [p for p in lint_job(job) if p.rule == "gpu-memory"]
    return problem


def test_the_whole_message():
    assert "\n".join(memory(micro_batch_size=2, activation_checkpointing=False).lines()) == (
        "warning: training needs about 120.9 GiB on each GPU, and a GPU of p4d.24xlarge has 40.0 GiB [gpu-memory]\n"
        "  --> train.model\n"
        "  parameters                     3.74 GiB\n"
        "  gradients                      3.74 GiB\n"
        "  optimiser state                7.48 GiB\n"
        "  copies for arithmetic          1.38 GiB\n"
        "  activations                   98.56 GiB\n"
        "  logits and their gradient      3.79 GiB\n"
        "  buffers of collectives         3.91 GiB\n"
        "  other (allowance)              2.00 GiB\n"
        "  at once                      120.87 GiB\n"
        "hint: it would fit with `activation_checkpointing: true` (26.8 GiB)"
    )


@pytest.mark.parametrize("scheme", ["ddp", "full", "shard_grad_op", "hybrid"])
@pytest.mark.parametrize("room", [20, 40, 80])
def test_suggested_changes_fit(scheme, room):
    setup = replace(SETUP, scheme=scheme)
    hint = suggest_changes(setup, room * GIB - RESERVED)
    assert hint.startswith(("it would fit with `", "use GPUs with more memory"))
    for needed in (float(part.partition(" GiB")[0]) for part in re.findall(r"\((\d[^)]*)", hint)):
        assert needed <= room


def test_hint_shows_the_estimate():
    room = 60 * GIB
    assert estimate_memory(SETUP).peak > room - RESERVED
    recomputed = estimate_memory(replace(SETUP, activation_checkpointing=True)).peak + RESERVED
    assert f"`activation_checkpointing: true` ({recomputed / GIB:.1f} GiB)" in suggest_changes(SETUP, room - RESERVED)


def test_changes_are_combined_if_one_is_not_enough():
    hint = suggest_changes(replace(SETUP, scheme="ddp", sequence_length=2048), 40 * GIB - RESERVED)
    assert "`activation_checkpointing: true` and `strategy: fsdp`" in hint


def test_no_change_is_enough():
    huge = replace(SETUP, shape=PRESETS["llama-3-70b"], scheme="none", world_size=1, local_world_size=1)
    assert suggest_changes(huge, 24 * GIB).startswith("use GPUs with more memory")


def test_smallest_number_of_ranks_decides():
    elastic = {**cases.llama(activation_checkpointing=True, sequence_length=2048), "instance": "p4d.24xlarge", "nodes": 4}
    assert not [p for p in lint_job(elastic) if p.rule == "gpu-memory"]
    assert not [p for p in lint_job({**elastic, "elastic": {"min": 4, "max": 8}}) if p.rule == "gpu-memory"]
    alone = {**elastic, "elastic": {"min": 1, "max": 8}, "processes_per_node": 1}
    assert [p for p in lint_job(alone) if p.rule == "gpu-memory"]


def test_smallest_number_of_nodes_is_suggested():
    setup = replace(
        SETUP, shape=PRESETS["llama-3-70b"], micro_batch_size=1, sequence_length=1024, activation_checkpointing=True
    )
    room = 40 * GIB - RESERVED
    nodes = int(suggest_changes(setup, room).partition("`nodes: ")[2].partition("`")[0])
    needed = [estimate_memory(replace(setup, world_size=8 * count)).peak for count in (nodes - 1, nodes)]
    assert needed[0] > room >= needed[1]


def test_ddp_keeps_its_global_batch_with_smaller_micro_batches():
    setup = replace(SETUP, scheme="ddp", micro_batch_size=4, accumulation=3, activation_checkpointing=True)
    room = estimate_memory(replace(setup, micro_batch_size=1)).peak
    assert "`micro_batch_size: 1` and `gradient_accumulation_steps: 12`" in suggest_changes(setup, room)


def test_whole_gradients_of_fsdp_are_sharded():
    setup = replace(SETUP, accumulation=8, accumulate="whole", micro_batch_size=1, activation_checkpointing=True)
    hint = suggest_changes(setup, estimate_memory(replace(setup, accumulate="sharded")).peak)
    assert hint.startswith("it would fit with `accumulate: sharded` (")
    assert "or with `gradient_accumulation_steps: 1` (a smaller global batch) (" in hint


def test_allowance_is_part_of_the_peak():
    spec = cases.llama(sequence_length=1024, activation_checkpointing=True)
    peak = estimate_memory(
        replace(SETUP, world_size=16, micro_batch_size=1, sequence_length=1024, activation_checkpointing=True)
    ).peak

    def violations(memory):
        job = {**spec, "resources": {"gpus": 8, "gpu_memory": str(memory)}}
        return [p for p in lint_job(job) if p.rule == "gpu-memory"]

    assert violations(peak + RESERVED) == []
    assert violations(peak + RESERVED - 1)


def test_every_process_of_a_pod_counts():
    def titles(processes):
        job = {**cases.train(), "processes_per_node": processes, "resources": {"memory": "6Gi"}}
        return [p.title for p in lint_job(job) if p.rule == "host-memory"]

    assert titles(2) == []
    assert titles(8)[0].startswith("8 processes need about 12.")


def test_spawned_processes_count():
    job = {**cases.spawned(8), "resources": {"memory": "6Gi"}}
    (title,) = [p.title for p in lint_job(job) if p.rule == "host-memory"]
    assert title.startswith("8 processes need about 12.")
