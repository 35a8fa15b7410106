"""Models with experts: their balance, their types, their weights in files, their shards, and resuming."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from kfjob.base.errors import KfjobError
from kfjob.trainer.experts import compute_balance, count_idle, prepare_experts
from kfjob.trainer.flops import model_flops_per_token
from kfjob.trainer.model import build_base_model, build_meta_model, read_shape
from kfjob.trainspec.flops import shape_flops_per_token
from kfjob.trainspec.model_shapes import PRESETS, count_idle_parameters, count_parameters
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_run import losses

MIXTRAL, QWEN = "micro-mixtral", "micro-qwen3-moe"


@pytest.fixture(scope="module")
def spec(tiny):
    return tiny | {"model": MIXTRAL, "vocab_size": 320, "micro_batch_size": 2, "max_steps": 4}


def save_with_three_experts(folder):
    """Save a Mixtral with new weights in the format of the hub, one matrix for each expert; 2 and 4 ranks do not divide 3."""
    shape = PRESETS[MIXTRAL].model_copy(update={"num_experts": 3, "vocab_size": 320})
    model = build_base_model(TrainSpec(model=shape, data="-", max_steps=1, sequence_length=16))
    model.save_pretrained(folder)
    return model


def test_balance_is_that_of_transformers_without_the_tokens_that_do_not_count():
    torch.manual_seed(0)
    logits: Any = tuple(torch.randn(2 * 5, 8) for _ in range(3))
    counts = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    expected = load_balancing_loss_func(logits, 8, 2, counts)
    torch.testing.assert_close(compute_balance(logits, 2, counts.flatten()), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(compute_balance(logits, 2, counts.flatten()), expected)
    assert compute_balance(logits, 2, torch.zeros(10)) == 0
    same_load = torch.eye(8)[torch.arange(8)] * 50 + torch.eye(8)[(torch.arange(8) + 1) % 8] * 50
    torch.testing.assert_close(compute_balance((same_load,), 2, torch.ones(8)), torch.tensor(2.0))


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("mixtral-8x7b", 46_702_792_704, 12_879_925_248), ("qwen3-30b-a3b", 30_532_122_624, 3_353_032_704)],
)
def test_flops_count_the_parameters_that_compute_a_token(name, total, active):
    shape = PRESETS[name]
    assert (count_parameters(shape), count_parameters(shape) - count_idle_parameters(shape)) == (total, active)
    model = build_meta_model(TrainSpec(model=name, data="-", max_steps=1))
    assert sum(parameter.numel() for parameter in model.parameters()) == total
    assert count_idle(model) == total - active
    assert model_flops_per_token(model, total, 1024) == shape_flops_per_token(shape, 1024)
    assert read_shape(model) is not None


def test_resume_is_bit_exact(workers, spec, tmp_path):
    spec = spec | {
        "model": MIXTRAL,
        "strategy": "fsdp",
        "max_steps": 6,
        "checkpoint_every": 3,
        "activation_checkpointing": True,
    }
    whole = workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path / "a")}}, world_size=2)
    split = spec | {"checkpoint_dir": str(tmp_path / "b")}
    workers.run("run_training", {"spec": split, "stop_after": 3}, world_size=2)
    rest = workers.run("run_training", {"spec": split}, world_size=2)
    assert [losses(result)[3:] for result in whole] == [losses(result) for result in rest]


def test_experts_that_the_ranks_do_not_divide_are_sharded_by_rows(workers, spec, tmp_path):
    """Each rank holds half of every expert, and reads only that from a file with one matrix for each expert."""
    folder = tmp_path / "model"
    parameters = list(save_with_three_experts(folder).parameters())
    spec = spec | {"model": str(folder), "vocab_size": None, "strategy": "fsdp"}
    elements = sum(parameter.numel() for parameter in parameters)
    results = workers.run("measure_bytes", {"spec": spec}, world_size=2)
    assert [result["parameters"] for result in results] == [pytest.approx(4 * elements / 2, rel=0.01)] * 2
    reads = workers.run("count_read_weights", {"spec": spec}, world_size=2)
    assert reads == [pytest.approx(elements / 2, rel=0.01)] * 2
    sharded = workers.run("run_training", {"spec": spec}, world_size=2)
    whole = workers.run("run_training", {"spec": spec | {"strategy": "ddp"}}, world_size=2)
    assert [losses(result) for result in sharded] == [pytest.approx(losses(whole[0]), abs=2e-6)] * 2


def test_weights_are_read_in_both_formats(tmp_path):
    model = save_with_three_experts(tmp_path / "hub")
    model.save_pretrained(tmp_path / "fused", save_original_format=False)
    for folder in ("hub", "fused"):
        spec = TrainSpec(model=str(tmp_path / folder), data="-", max_steps=1, sequence_length=16)
        for stored, parameter in zip(model.parameters(), build_base_model(spec).parameters(), strict=True):
            assert torch.equal(stored, parameter)


@pytest.mark.parametrize("change", [{"strategy": "none"}, {"strategy": "fsdp"}], ids=lambda change: change["strategy"])
def test_experts_compute_in_16_bits(workers, spec, change):
    (dtypes,) = workers.run("record_expert_dtypes", {"spec": spec | change | {"precision": "bf16", "max_steps": 1}})
    assert dtypes == [["torch.bfloat16", "torch.bfloat16"]]


@pytest.mark.long  # tests/trainer/test_run.py compiles a model without experts
def test_compiled_and_recomputed_layers_have_the_same_losses(workers, spec):
    spec = spec | {"model": QWEN, "strategy": "none", "max_steps": 2}
    (expected,) = workers.run("run_training", {"spec": spec})
    (compiled,) = workers.run("run_compiled", {"spec": spec | {"activation_checkpointing": True}})
    assert losses(compiled) == pytest.approx(losses(expected), abs=2e-6)
    assert compiled["graphs"] > 0


def test_evaluation_has_no_loss_of_the_router(workers, spec):
    spec = spec | {"strategy": "none", "max_steps": 1, "eval_every": 1, "lr": 1e-9, "min_lr": 0, "weight_decay": 0}
    with_router, without = (
        workers.run("run_training", {"spec": spec | {"router_aux_loss_coef": factor}})[0] for factor in (0.5, 0)
    )
    assert losses(with_router)[0] > losses(without)[0] + 0.5
    assert "Loss is cross-entropy + " in workers.log()
    assert with_router["evaluations"] == [pytest.approx(entry, abs=1e-5) for entry in without["evaluations"]]


def test_factor_needs_a_router():
    spec = TrainSpec(model="./folder", data="-", max_steps=1, router_aux_loss_coef=0.1)
    model = build_meta_model(TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=16))
    with pytest.raises(KfjobError, match="has no router"):
        prepare_experts(model, spec)
