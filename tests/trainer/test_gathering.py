"""The collectives of FSDP2 with three layers on three ranks, and the gradient reductions of every strategy.

Each rank holds a third of each layer, and layers are gathered one after the other.
"""

from __future__ import annotations

import pytest

from kfjob.trainspec.memory import count_layer_parameters
from kfjob.trainspec.model_shapes import ModelShape, count_parameters

SHAPE = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3}
SPEC = {"model": SHAPE, "data": "-", "max_steps": 1, "sequence_length": 8, "strategy": "fsdp"}
LAYER = count_layer_parameters(ModelShape(**SHAPE))
TYPES = {"fp32": ("torch.float32", 4), "bf16": ("torch.bfloat16", 2), "fp16": ("torch.float16", 2)}


def gathered_layers(gathers):
    """Return the gathered layers by their weights; those of embedding, head and last norm are 0."""
    return [values for name, _, _, values in gathers if name == "allgather" and values != [0.0]]


@pytest.mark.parametrize(("sharding", "backward"), [("full", [[3], [2], [1]]), ("shard_grad_op", [])])
def test_layers_are_gathered_in_order(workers, sharding, backward):
    """With shard_grad_op a layer stays gathered until its backward pass."""
    for result in workers.run("record_collectives", {"spec": SPEC | {"sharding": sharding}}, world_size=3):
        assert gathered_layers(result["forward"]) == [[1], [2], [3]]
        assert gathered_layers(result["backward"]) == backward
        assert result["local_elements"] == [LAYER / 3] * 3


@pytest.mark.parametrize("prefetch", [1, 2])
def test_embedding_and_head_are_gathered_on_demand(workers, prefetch):
    """The forward pass ends with the head and the backward pass begins with it, so it is not gathered again."""
    third = SHAPE["vocab_size"] * SHAPE["hidden_size"] * 4 // 3
    for result in workers.run("record_collectives", {"spec": SPEC | {"precision": "fp32", "prefetch": prefetch}}, world_size=3):
        assert gathered_layers(result["forward"]) == [[1], [2], [3]]
        assert gathered_layers(result["backward"]) == [[3], [2], [1]]
        sizes = [
            [size for name, _, size, _ in result[direction] if name == "allgather"] for direction in ("forward", "backward")
        ]
        assert [group.count(third) for group in sizes] == [2, 1]  # embedding and head, then the embedding


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-true"])
def test_gathers_use_the_precision_and_reductions_fp32(workers, precision):
    """torch's default dtype of reductions differs between versions."""
    dtype, width = TYPES[precision.removesuffix("-true")]
    for result in workers.run("record_collectives", {"spec": SPEC | {"precision": precision}}, world_size=3):
        gathers = [(kind, size) for name, kind, size, values in result["forward"] if name == "allgather" and values != [0.0]]
        assert gathers == [(dtype, LAYER * width // 3)] * 3
        sums = [(kind, size) for name, kind, size, _ in result["backward"] if name == "reduce_scatter"]
        assert {kind for kind, _ in sums} == {"torch.float32"}
        assert [size for _, size in sums].count(LAYER * 4) == 3


@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"strategy": "ddp"}, 1),
        ({"strategy": "fsdp"}, 4),
        ({"strategy": "fsdp", "accumulate": "whole"}, 1),
        ({"strategy": "deepspeed", "zero_stage": 0}, 1),
        ({"strategy": "deepspeed", "zero_stage": 1}, 1),
        ({"strategy": "deepspeed", "zero_stage": 2}, 4),  # it does not store full gradients
        ({"strategy": "deepspeed", "zero_stage": 3}, 4),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_number_of_gradient_reductions_with_accumulation(workers, change, times):
    bytes_of = {}
    for number in (1, 4):
        spec = SPEC | {"precision": "fp32", "gradient_accumulation_steps": number} | change
        sums = workers.run("record_gradient_reductions", {"spec": spec}, world_size=2)[0]
        bytes_of[number] = sum(size for _, size in sums)
    assert bytes_of[1] >= 4 * count_parameters(ModelShape(**SHAPE))
    assert bytes_of[4] == times * bytes_of[1]


@pytest.mark.parametrize(("accumulate", "scatters"), [("sharded", 4), ("whole", 1)])
def test_replicas_exchange_gradients_once_a_step(workers, accumulate, scatters):
    """Hybrid sharding reduces to shards within a group on each micro-batch, and among the groups on the last one."""
    counts = {}
    for number in (1, 4):
        spec = SPEC | {"precision": "fp32", "gradient_accumulation_steps": number, "accumulate": accumulate}
        spec |= {"strategy": "fsdp", "sharding": "hybrid", "shard_size": 2}
        names = [name for name, _ in workers.run("record_gradient_reductions", {"spec": spec}, world_size=4)[0]]
        counts[number] = {name: names.count(name) for name in names}
    assert len(counts[1]) == 2
    for name, count in counts[1].items():
        assert counts[4][name] == count * (scatters if "scatter" in name else 1)
