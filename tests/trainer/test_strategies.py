"""Every strategy gives the losses of one process, and can resume from a checkpoint of any other strategy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kfjob.base.errors import KfjobError
from kfjob.trainer.strategies.zero import check_precision
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.conftest import SHAPE
from tests.trainer.test_equal import FSDP, TOLERANCE, ZERO, case_id
from tests.trainer.test_run import losses

VARIANTS = [  # test_equal.py has the others
    (2, FSDP | {"accumulate": "whole", "micro_batch_size": 1, "gradient_accumulation_steps": 4}),
    (2, FSDP | {"prefetch": 2}),
    (2, FSDP | {"cpu_offload": True}),
    (2, FSDP | {"activation_checkpointing": True, "recompute": "cheap"}),
    (2, FSDP | {"activation_checkpointing": True, "recompute_every": 2}),
    (2, FSDP | {"activation_offload": True}),
    (2, {"strategy": "ddp", "activation_offload": True, "activation_checkpointing": True}),
    (2, ZERO[2] | {"micro_batch_size": 2, "gradient_accumulation_steps": 2}),
    (2, ZERO[2] | {"cpu_offload": True}),
    (2, ZERO[3] | {"cpu_offload": True}),
]


@pytest.fixture(scope="module")
def reference(workers, tiny):
    """The losses of one process with a global batch of 8 and no accumulation."""
    return losses(workers.run("run_training", {"spec": tiny | {"strategy": "none", "micro_batch_size": 8}})[0])


@pytest.mark.parametrize(("ranks", "change"), VARIANTS, ids=case_id)
def test_every_variant_gives_the_same_losses(workers, tiny, reference, ranks, change):
    for result in workers.run("run_training", {"spec": tiny | change}, world_size=ranks):
        assert losses(result) == pytest.approx(reference, abs=TOLERANCE, rel=0)


@pytest.mark.parametrize("precision", ["bf16", "fp16", "bf16-true"])
@pytest.mark.parametrize("strategy", ["none", "fsdp", "ddp"])
def test_half_precision_losses_are_close(workers, tiny, reference, strategy, precision):
    ranks, tolerance = 1 if strategy == "none" else 2, 0.03 if precision == "bf16" else 0.06
    spec = tiny | {"strategy": strategy, "precision": precision, "micro_batch_size": 8 // ranks}
    for result in workers.run("run_training", {"spec": spec}, world_size=ranks):
        assert losses(result) == pytest.approx(reference, abs=tolerance, rel=0)
        assert losses(result) != reference


def test_resume_through_strategies_and_world_sizes(workers, tiny, reference, tmp_path):
    spec = tiny | {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "checkpoint_dir": str(tmp_path)}
    chain_losses: dict[str, float] = {}
    chain = [
        (ZERO[3] | {"gradient_accumulation_steps": 1}, 2, 1),
        ({"strategy": "dp"}, 1, 1),
        (ZERO[1], 2, 1),
        (FSDP | {"sharding": "hybrid", "shard_size": 1}, 2, 1),
        ({"strategy": "ddp"}, 2, 1),
        (ZERO[2], 1, None),
    ]
    for change, ranks, steps in chain:
        arguments = {"spec": spec | change, "stop_after": steps}
        chain_losses |= workers.run("run_training", arguments, world_size=ranks)[0]["losses"]
    assert list(chain_losses.values()) == pytest.approx(reference, abs=TOLERANCE, rel=0)


@pytest.mark.parametrize(
    ("ranks", "change", "message"),
    [
        (2, {"strategy": "dp"}, "strategy `dp` needs one process, this run has 2"),
        (2, FSDP | {"sharding": "hybrid", "shard_size": 3}, "2 ranks cannot be divided into groups of 3"),
        (1, FSDP | {"wrap": ["BertLayer"]}, "has no layers of class `BertLayer`\n  --> wrap\n  cause: it has 1 LlamaModel"),
    ],
    ids=case_id,
)
def test_unsupported_strategy_settings_are_errors(workers, tiny, ranks, change, message):
    assert message in workers.run("error_of_training", {"spec": tiny | change}, world_size=ranks)[0]


def test_precision_of_no_such_device_is_an_error():
    """The device is simulated: newer CPUs compute in fp16."""
    spec = TrainSpec(model="micro-llama", data="synthetic", max_steps=1, precision="fp16", **ZERO[2])
    device = SimpleNamespace(is_fp16_supported=lambda: False, is_bf16_supported=lambda: True, device_name=lambda: "cpu")
    with pytest.raises(KfjobError, match="DeepSpeed does not support `precision: fp16` on cpu"):
        check_precision(spec, device)


@pytest.mark.parametrize(
    "change",
    [
        {"activation_offload": True, "activation_checkpointing": True},
        *(
            pytest.param(change, marks=pytest.mark.long)
            for change in ({}, {"activation_offload": True}, {"activation_checkpointing": True})
        ),
    ],
    ids=case_id,
)
def test_equal_layers_are_compiled_once(workers, tiny, change):
    """Six layers share their graphs, one for training and one for evaluation. The losses are the same."""
    spec = (
        tiny | FSDP | {"model": SHAPE | {"num_hidden_layers": 6}, "vocab_size": None, "max_steps": 3, "eval_every": 2} | change
    )
    plain = workers.run("run_training", {"spec": spec}, world_size=2)
    for result, expected in zip(workers.run("run_compiled", {"spec": spec}, world_size=2), plain, strict=True):
        assert 1 <= result["graphs"] <= 4
        assert losses(result) == pytest.approx(losses(expected), abs=TOLERANCE, rel=0)


def test_compiled_layers_with_packed_documents(workers, tiny):
    """Without a GPU the documents are computed between the graphs of a layer. Their number causes no compilation."""
    spec = tiny | {"strategy": "none", "packing": "documents", "sequence_length": 64, "max_steps": 6}
    (plain,) = workers.run("run_training", {"spec": spec})
    (result,) = workers.run("run_compiled", {"spec": spec})
    first, *later = result["graphs by step"]
    assert first > 0
    assert later == [0] * 5
    assert losses(result) == pytest.approx(losses(plain), abs=TOLERANCE, rel=0)


def test_nested_wrap_units(workers, tiny):
    """New weights depend on the units, so the reference is one process with the same units."""
    spec = tiny | {"wrap": ["LlamaMLP", "LlamaDecoderLayer"]}
    (reference,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    for result in workers.run("run_training", {"spec": spec | FSDP}, world_size=2):
        assert losses(result) == pytest.approx(losses(reference), abs=TOLERANCE, rel=0)
