"""ZeRO's four stages: what a rank holds against the formula, what it says of it, and what it exchanges."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kfjob.spec.memory import estimate_memory, make_setup
from kfjob.spec.models import PRESETS, count_parameters
from kfjob.spec.train import TrainSpec

# Stage 3 keeps parameters of up to 100 000 elements whole (stage3_param_persistence_threshold): the matrices are larger.
SHAPE = {"vocab_size": 512, "hidden_size": 320, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4}
PARTS = ("parameters", "gradients", "optimizer")
HALVED = {0: (), 1: ("optimizer",), 2: ("gradients", "optimizer"), 3: PARTS}
"""What two ranks share at each stage (ZeRO paper, section 5)."""


def spec_of(**changes):
    same = {"model": SHAPE, "data": "-", "max_steps": 1, "strategy": "deepspeed", "gradient_accumulation_steps": 2}
    return same | {"micro_batch_size": 1, "sequence_length": 16, "precision": "fp32"} | changes


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("stage", range(4))
def test_a_rank_holds_what_the_formula_says_and_half_of_what_is_shared(workers, stage, precision):
    spec = spec_of(zero_stage=stage, precision=precision)
    held = {}
    for ranks in (1, 2):
        setup = make_setup(TrainSpec(**spec), world_size=ranks, local_world_size=ranks)
        assert setup
        predicted = estimate_memory(setup)
        for measured in workers.run("measure_zero_bytes", {"spec": spec}, world_size=ranks):
            for part in PARTS:
                assert measured[part] == pytest.approx(getattr(predicted, part), rel=0.1), (ranks, part)
            held[ranks] = measured
    for part in PARTS:
        assert held[2][part] / held[1][part] == pytest.approx(0.5 if part in HALVED[stage] else 1.0, rel=0.02), part


@pytest.mark.parametrize(
    ("stage", "precision", "micro_batches"), [(1, "fp32", 2), (2, "bf16", 1), (2, "bf16", 2), (3, "bf16", 2)]
)
def test_what_is_offloaded_is_what_the_formula_puts_on_the_host(workers, stage, precision, micro_batches):
    spec = spec_of(zero_stage=stage, precision=precision, cpu_offload=True, gradient_accumulation_steps=micro_batches)
    for ranks in (1, 2):
        setup = make_setup(TrainSpec(**spec), world_size=ranks, local_world_size=ranks)
        assert setup
        here, there = (estimate_memory(replace(setup, cpu_offload=offloaded)) for offloaded in (False, True))
        assert (there.gradients, there.optimizer) == (0, 0)
        assert there.parameters == (0 if stage == 3 else here.parameters)
        predicted = there.parameters + there.host - here.host
        for held, largest in workers.run("measure_offloaded_bytes", {"spec": spec}, world_size=ranks):
            bucket = 500_000_000 * setup.compute_bytes if stage == 3 else 0
            assert largest == bucket or not bucket
            assert here.buffers >= bucket
            assert held - bucket == pytest.approx(predicted, rel=0.1)


def run(workers, tiny, stage, **changes):
    """One of two ranks: they exchange the same."""
    spec = tiny | {"strategy": "deepspeed", "zero_stage": stage, "comms_logger": True, "max_steps": 3} | changes
    return workers.run("run_with_comms_logger", {"spec": spec}, world_size=2)[0]


def test_the_line_of_each_rank(workers, tiny):
    """At the shape of Qwen2-1.5B but for its depth and vocabulary, since the whole of it needs 27 GB for two ranks; its own
    numbers follow from its count, which is exact on the meta device.
    """
    whole = count_parameters(PRESETS["qwen2-1.5b"])
    assert (whole, whole // 2) == (1543714304, 771857152)
    shape = PRESETS["qwen2-1.5b"].model_copy(update={"num_hidden_layers": 1, "vocab_size": 512})
    count = count_parameters(shape)
    for stage in range(4):
        options = {"model": shape.model_dump(), "vocab_size": None, "lr": 5e-5, "betas": [0.9, 0.999], "max_steps": 1}
        lines = run(workers, tiny, stage, **options, micro_batch_size=1, comms_logger=False)["lines"]
        held = count // 2 if stage else count
        about = f"ZeRO Stage: {stage} | Optimizer: lr=5e-05 | betas=(0.9, 0.999) | eps=1e-08 | parameter count={held}"
        assert lines == [f"Device {rank} | {about}" for rank in range(2)]


def test_stage_0_moves_least_and_stage_3_most(workers, tiny):
    """By DeepSpeed's own account. Its table is printed once, at the end."""
    moved = {}
    for stage in range(4):
        result = run(workers, tiny, stage)
        moved[stage] = sum(result["bytes"].values())
        table = result["output"]
        assert table.count("Comm. Op") == 1
        assert all(re.search(rf"^{name}$", table, re.MULTILINE) for name in result["bytes"])
    assert moved[0] < min(moved[1], moved[2])
    assert max(moved[1], moved[2]) < moved[3]


def test_nothing_is_counted_unless_asked_for(workers, tiny):
    result = run(workers, tiny, 1, comms_logger=False)
    assert (result["bytes"], "Comm. Op" in result["output"]) == ({}, False)
