"""What ranks exchange. Three layers on three devices, as FSDP is drawn: each device has a third of each layer, and layers are
gathered in turn. Gradients of a step are summed once, where the strategy can wait.
"""

from __future__ import annotations

import pytest

from kfjob.spec.memory import count_layer_parameters
from kfjob.spec.models import ModelShape, count_parameters

SHAPE = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 3}
SPEC = {"model": SHAPE, "data": "-", "max_steps": 1, "sequence_length": 8, "strategy": "fsdp"}
LAYER = count_layer_parameters(ModelShape(**SHAPE))
TYPES = {"fp32": ("torch.float32", 4), "bf16": ("torch.bfloat16", 2), "fp16": ("torch.float16", 2)}


def layers_of(gathers):
    """Which layers these are, by the numbers in them; embedding, head and last norm are 0."""
    return [values for name, _, _, values in gathers if name == "allgather" and values != [0.0]]


@pytest.mark.parametrize(("sharding", "again"), [("full", [[3], [2], [1]]), ("shard_grad_op", [])])
def test_a_b_c_and_back(workers, sharding, again):
    """With shard_grad_op a layer stays whole until its backward pass."""
    for result in workers.run("record_collectives", {"spec": SPEC | {"sharding": sharding}}, world_size=3):
        assert layers_of(result["forward"]) == [[1], [2], [3]]
        assert layers_of(result["backward"]) == again
        assert result["local_elements"] == [LAYER / 3] * 3


@pytest.mark.parametrize("prefetch", [1, 2])
def test_ends_are_gathered_when_they_are_needed(workers, prefetch):
    """The backward pass begins with the head, where the forward pass has ended: it is not gathered again."""
    third = SHAPE["vocab_size"] * SHAPE["hidden_size"] * 4 // 3
    for result in workers.run("record_collectives", {"spec": SPEC | {"precision": "fp32", "prefetch": prefetch}}, world_size=3):
        assert layers_of(result["forward"]) == [[1], [2], [3]]
        assert layers_of(result["backward"]) == [[3], [2], [1]]
        sizes = [[size for name, _, size, _ in result[way] if name == "allgather"] for way in ("forward", "backward")]
        assert [some.count(third) for some in sizes] == [2, 1]  # embedding and head, then the embedding


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "bf16-true"])
def test_layers_travel_in_their_precision_and_gradients_in_fp32(workers, precision):
    """What torch does where no type is given for the sums has changed between its versions."""
    arithmetic, width = TYPES[precision.removesuffix("-true")]
    for result in workers.run("record_collectives", {"spec": SPEC | {"precision": precision}}, world_size=3):
        there = [(kind, size) for name, kind, size, values in result["forward"] if name == "allgather" and values != [0.0]]
        assert there == [(arithmetic, LAYER * width // 3)] * 3
        sums = [(kind, size) for name, kind, size, _ in result["backward"] if name == "reduce_scatter"]
        assert {kind for kind, _ in sums} == {"torch.float32"}
        assert [size for _, size in sums].count(LAYER * 4) == 3


@pytest.mark.parametrize(
    ("change", "times"),
    [
        ({"strategy": "ddp"}, 1),
        ({"strategy": "fsdp"}, 1),
        ({"strategy": "fsdp", "accumulate": "sharded"}, 4),
        ({"strategy": "deepspeed", "zero_stage": 0}, 1),
        ({"strategy": "deepspeed", "zero_stage": 1}, 1),
        ({"strategy": "deepspeed", "zero_stage": 2}, 4),  # it has no place for whole gradients
        ({"strategy": "deepspeed", "zero_stage": 3}, 4),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_four_micro_batches_exchange_gradients_once(workers, change, times):
    bytes_of = {}
    for number in (1, 4):
        spec = SPEC | {"precision": "fp32", "gradient_accumulation_steps": number} | change
        sums = workers.run("record_gradient_reductions", {"spec": spec}, world_size=2)[0]
        bytes_of[number] = sum(size for _, size in sums)
    assert bytes_of[1] >= 4 * count_parameters(ModelShape(**SHAPE))
    assert bytes_of[4] == times * bytes_of[1]
