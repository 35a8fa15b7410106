"""Will it fit? What is said, and that what is advised is true."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kfjob.lint.fit import advice
from kfjob.spec.memory import RESERVED, MemorySetup, estimate_memory
from kfjob.spec.models import PRESETS
from kfjob.units import GIB
from tests.unit.lint import cases
from tests.unit.lint.test_rules import findings

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
    (found,) = [p for p in findings({**cases.llama(**train), "instance": "p4d.24xlarge", "nodes": 1}) if p.rule == "gpu-memory"]
    return found


def test_the_whole_message():
    assert "\n".join(memory(micro_batch_size=2).lines()) == (
        "warning: needs about 120.9 GiB on each GPU, and a GPU of p4d.24xlarge has 40.0 GiB [gpu-memory]\n"
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
def test_what_is_advised_fits(scheme, room):
    setup = replace(SETUP, scheme=scheme)
    said = advice(setup, room * GIB - RESERVED)
    assert said.startswith(("it would fit with `", "take GPUs with more memory"))
    for needed in (float(part.partition(" GiB")[0]) for part in re.findall(r"\((\d[^)]*)", said)):
        assert needed <= room


def test_advice_is_what_the_formula_says():
    room = 60 * GIB
    assert estimate_memory(SETUP).peak > room - RESERVED
    recomputed = estimate_memory(replace(SETUP, activation_checkpointing=True)).peak + RESERVED
    assert f"`activation_checkpointing: true` ({recomputed / GIB:.1f} GiB)" in advice(SETUP, room - RESERVED)


def test_changes_are_put_together_where_one_is_not_enough():
    said = advice(replace(SETUP, scheme="ddp", sequence_length=2048), 40 * GIB - RESERVED)
    assert "`activation_checkpointing: true` and `strategy: fsdp`" in said


def test_a_model_that_no_change_makes_fit():
    huge = replace(SETUP, shape=PRESETS["llama-3-70b"], scheme="none", world_size=1, local_world_size=1)
    assert advice(huge, 24 * GIB).startswith("take GPUs with more memory")


def test_fewest_ranks_decide():
    elastic = {**cases.llama(activation_checkpointing=True, sequence_length=2048), "instance": "p4d.24xlarge", "nodes": 4}
    assert not [p for p in findings(elastic) if p.rule == "gpu-memory"]
    assert not [p for p in findings({**elastic, "elastic": {"min": 4, "max": 8}}) if p.rule == "gpu-memory"]
    alone = {**elastic, "elastic": {"min": 1, "max": 8}, "processes_per_node": 1}
    assert [p for p in findings(alone) if p.rule == "gpu-memory"]


def test_as_few_more_nodes_as_are_enough():
    setup = replace(
        SETUP, shape=PRESETS["llama-3-70b"], micro_batch_size=1, sequence_length=1024, activation_checkpointing=True
    )
    room = 40 * GIB - RESERVED
    nodes = int(advice(setup, room).partition("`nodes: ")[2].partition("`")[0])
    needed = [estimate_memory(replace(setup, world_size=8 * many)).peak for many in (nodes - 1, nodes)]
    assert needed[0] > room >= needed[1]


def test_ddp_keeps_its_global_batch_in_smaller_parts():
    setup = replace(SETUP, scheme="ddp", micro_batch_size=4, accumulation=3, activation_checkpointing=True)
    room = estimate_memory(replace(setup, micro_batch_size=1)).peak
    assert "`micro_batch_size: 1` and `gradient_accumulation_steps: 12`" in advice(setup, room)


def test_fsdp_is_told_what_its_accumulation_costs():
    setup = replace(SETUP, accumulation=8, micro_batch_size=1, activation_checkpointing=True)
    said = advice(setup, estimate_memory(replace(setup, accumulation=1)).peak)
    assert said.startswith("it would fit with `gradient_accumulation_steps: 1` (a smaller global batch) (")


def test_the_allowance_counts_and_what_just_fits_fits():
    spec = cases.llama(sequence_length=1024, activation_checkpointing=True)
    peak = estimate_memory(
        replace(SETUP, world_size=16, micro_batch_size=1, sequence_length=1024, activation_checkpointing=True)
    ).peak

    def found(memory):
        job = {**spec, "resources": {"gpus": 8, "gpu_memory": str(memory)}}
        return [p for p in findings(job) if p.rule == "gpu-memory"]

    assert found(peak + RESERVED) == []
    assert found(peak + RESERVED - 1)


def test_every_process_of_a_pod_counts():
    def found(processes):
        job = {**cases.train(), "processes_per_node": processes, "resources": {"memory": "6Gi"}}
        return [p.title for p in findings(job) if p.rule == "host-memory"]

    assert found(2) == []
    assert found(8)[0].startswith("8 processes need about 12.")


def test_spawned_processes_count():
    job = {**cases.spawned(8), "resources": {"memory": "6Gi"}}
    (found,) = [p.title for p in findings(job) if p.rule == "host-memory"]
    assert found.startswith("8 processes need about 12.")
