"""ZeRO's four stages: measured memory compared with the formula, each rank's log line, and the communication."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from kfjob.trainspec.memory import estimate_memory
from kfjob.trainspec.memory_setup import make_setup
from kfjob.trainspec.model_shapes import PRESETS, count_parameters
from kfjob.trainspec.train_spec import TrainSpec

# Stage 3 does not shard parameters of up to 100 000 elements (stage3_param_persistence_threshold): the matrices are larger.
SHAPE = {"vocab_size": 512, "hidden_size": 320, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 4}
PARTS = ("parameters", "gradients", "optimizer")
SHARDED = {0: (), 1: ("optimizer",), 2: ("gradients", "optimizer"), 3: PARTS}
"""The parts that two ranks shard at each stage (ZeRO paper, section 5)."""


def make_spec(**changes):
    base = {"model": SHAPE, "data": "-", "max_steps": 1, "strategy": "deepspeed", "gradient_accumulation_steps": 2}
    return base | {"micro_batch_size": 1, "sequence_length": 16, "precision": "fp32"} | changes


@pytest.mark.parametrize(("stage", "precision"), [(0, "fp32"), (1, "bf16"), (2, "fp32"), (3, "bf16")])
def test_memory_matches_the_formula_and_sharded_parts_are_halved(workers, stage, precision):
    spec = make_spec(zero_stage=stage, precision=precision)
    bytes_by_ranks = {}
    for ranks in (1, 2):
        setup = make_setup(TrainSpec(**spec), world_size=ranks, local_world_size=ranks)
        assert setup
        predicted = estimate_memory(setup)
        for measured in workers.run("measure_zero_bytes", {"spec": spec}, world_size=ranks):
            for part in PARTS:
                assert measured[part] == pytest.approx(getattr(predicted, part), rel=0.1), (ranks, part)
            bytes_by_ranks[ranks] = measured
    for part in PARTS:
        assert bytes_by_ranks[2][part] / bytes_by_ranks[1][part] == pytest.approx(
            0.5 if part in SHARDED[stage] else 1.0, rel=0.02
        ), part


@pytest.mark.parametrize(
    ("stage", "precision", "micro_batches"),
    [
        pytest.param(1, "fp32", 2, marks=pytest.mark.long),
        pytest.param(2, "bf16", 1, marks=pytest.mark.long),
        pytest.param(2, "bf16", 2, marks=pytest.mark.long),
        (3, "bf16", 2),
    ],
)
def test_offloaded_memory_matches_the_formula(workers, stage, precision, micro_batches):
    spec = make_spec(zero_stage=stage, precision=precision, cpu_offload=True, gradient_accumulation_steps=micro_batches)
    for ranks in (1, 2):
        setup = make_setup(TrainSpec(**spec), world_size=ranks, local_world_size=ranks)
        assert setup
        without_offload, with_offload = (estimate_memory(replace(setup, cpu_offload=offloaded)) for offloaded in (False, True))
        assert (with_offload.gradients, with_offload.optimizer) == (0, 0)
        assert with_offload.parameters == (0 if stage == 3 else without_offload.parameters)
        predicted = with_offload.parameters + with_offload.host - without_offload.host
        for total, largest in workers.run("measure_offloaded_bytes", {"spec": spec}, world_size=ranks):
            bucket = 500_000_000 * setup.compute_bytes if stage == 3 else 0
            assert largest == bucket or not bucket
            assert without_offload.buffers >= bucket
            assert total - bucket == pytest.approx(predicted, rel=0.1)


def run_with_logger(workers, tiny, stage, **changes):
    """Return the result of one of two ranks; both are equal."""
    spec = tiny | {"strategy": "deepspeed", "zero_stage": stage, "comms_logger": True, "max_steps": 3} | changes
    return workers.run("run_with_comms_logger", {"spec": spec}, world_size=2)[0]


def test_log_line_of_each_rank(workers, tiny):
    """The model is Qwen2-1.5B with one layer and small sizes, because the full model needs 27 GB for two ranks."""
    shape = PRESETS["qwen2-1.5b"].model_copy(update={"num_hidden_layers": 1, "vocab_size": 512, "intermediate_size": 640})
    count = count_parameters(shape)
    for stage in range(4):
        options = {"model": shape.model_dump(), "vocab_size": None, "lr": 5e-5, "betas": [0.9, 0.999], "max_steps": 1}
        lines = run_with_logger(workers, tiny, stage, **options, micro_batch_size=1, comms_logger=False)["lines"]
        elements = count // 2 if stage else count
        description = f"ZeRO Stage: {stage} | Optimizer: lr=5e-05 | betas=(0.9, 0.999) | eps=1e-08 | parameter count={elements}"
        assert lines == [f"Device {rank} | {description}" for rank in range(2)]


def test_stage_0_communicates_least_and_stage_3_most(workers, tiny):
    """The bytes are DeepSpeed's own numbers. Its table is printed once, at the end."""
    communicated = {}
    for stage in range(4):
        result = run_with_logger(workers, tiny, stage)
        communicated[stage] = sum(result["bytes"].values())
        table = result["output"]
        assert table.count("Comm. Op") == 1
        (total,) = result["totals"]
        assert total.startswith(f"Communication {communicated[stage] / 2**20:.1f} MiB in ")
        assert all(re.search(rf"^{name}$", table, re.MULTILINE) for name in result["bytes"])
    assert communicated[0] < min(communicated[1], communicated[2])
    assert max(communicated[1], communicated[2]) < communicated[3]


def test_comms_logger_is_off_by_default(workers, tiny):
    result = run_with_logger(workers, tiny, 1, comms_logger=False)
    assert (result["bytes"], "Comm. Op" in result["output"]) == ({}, False)
