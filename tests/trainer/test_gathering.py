"""Three layers on three devices, as FSDP is drawn: each device has a third of each layer, and layers are gathered in turn."""

from __future__ import annotations

import pytest

from kfjob.spec.memory import layer_parameters
from kfjob.spec.models import ModelShape

SHAPE = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3}
SPEC = {"model": SHAPE, "data": "-", "max_steps": 1, "sequence_length": 8, "strategy": "fsdp"}
FORWARD, BACK = ["0", "1", "2"], ["2", "1", "0"]


@pytest.mark.parametrize(("sharding", "backward"), [("full", BACK), ("shard_grad_op", [])])
def test_a_b_c_and_back(workers, sharding, backward):
    results = workers.run("gathered", {"spec": SPEC | {"sharding": sharding}}, world_size=3)
    third = layer_parameters(ModelShape(**SHAPE)) / 3
    for result in results:
        assert result["layers"] == [FORWARD, backward]
        assert result["shares"] == [third] * 3


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-true"])
def test_gradients_are_summed_in_fp32(workers, precision):
    """What torch does where no type is given has changed between its versions."""
    results = workers.run("gathered", {"spec": SPEC | {"precision": precision}}, world_size=3)
    assert [result["sums"] for result in results] == [["torch.float32"]] * 3
