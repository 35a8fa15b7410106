"""The formula for the memory of a rank."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kfjob.base.units import GIB
from kfjob.trainspec.linear_layers import count_trained, list_linear_layers
from kfjob.trainspec.memory import count_layer_parameters, estimate_memory
from kfjob.trainspec.memory_changes import describe_savings
from kfjob.trainspec.memory_setup import MemorySetup, make_setup
from kfjob.trainspec.memory_table import list_rows
from kfjob.trainspec.model_shapes import PRESETS, count_embedding_parameters, count_parameters
from kfjob.trainspec.train_fields import LoraSpec
from kfjob.trainspec.train_spec import TrainSpec

LLAMA = MemorySetup(
    shape=PRESETS["llama-2-7b"],
    scheme="full",
    precision="bf16",
    world_size=64,
    local_world_size=8,
    micro_batch_size=1,
    sequence_length=2048,
)
COUNT = count_parameters(LLAMA.shape)


@pytest.mark.parametrize(
    ("scheme", "bytes_a_parameter"),
    [("zero-1", 4 + 12 / 64), ("zero-2", 2 + 14 / 64), ("zero-3", 16 / 64)],
)
def test_zero_stages_equal_those_of_the_paper(scheme, bytes_a_parameter):
    """Figure 1 of Rajbhandari et al. 2020: 31.4, 16.6 and 1.9 GB for 7.5 billion parameters on 64 GPUs."""
    estimate = estimate_memory(replace(LLAMA, scheme=scheme))
    assert estimate.parameters + estimate.gradients + estimate.optimizer == pytest.approx(bytes_a_parameter * COUNT, rel=1e-6)


def test_sharding_divides_the_state():
    single, sharded = (estimate_memory(replace(LLAMA, scheme=scheme, precision="fp32")) for scheme in ("none", "full"))
    assert single.parameters == 64 * sharded.parameters
    assert single.optimizer == 64 * sharded.optimizer == 8 * COUNT
    assert sharded.copies < single.parameters / 16


def test_hybrid_shards_within_a_node():
    assert estimate_memory(replace(LLAMA, scheme="hybrid")).parameters == -(-COUNT * 4 // 8)


def test_accumulation_keeps_whole_gradients():
    single, accumulated = (estimate_memory(replace(LLAMA, accumulation=n, accumulate="whole")) for n in (1, 4))
    assert accumulated.gradients == 4 * COUNT
    assert accumulated.gradients == 64 * single.gradients
    assert accumulated.peak - single.peak > 4 * COUNT * 0.9


def test_accumulation_of_shards_needs_little_memory():
    """The shards exist during the forward pass of the next micro-batch."""
    single, accumulated = (estimate_memory(replace(LLAMA, accumulation=n, accumulate="sharded")) for n in (1, 4))
    assert accumulated.gradients == single.gradients
    assert 0 <= accumulated.peak - single.peak <= 2 * single.gradients + single.buffers


def test_offload_moves_the_state_to_the_host():
    device, host = (estimate_memory(replace(LLAMA, cpu_offload=offload)) for offload in (False, True))
    state = device.parameters + device.gradients + device.optimizer
    assert host.parameters == host.gradients == host.optimizer == 0
    assert host.host - device.host == state
    assert host.copies == device.copies


def test_activation_checkpointing_reduces_activations():
    full, recomputed = (estimate_memory(replace(LLAMA, activation_checkpointing=switch)) for switch in (False, True))
    assert recomputed.activations < full.activations / 10


def test_activations_and_logits_grow_with_samples_and_tokens():
    base = estimate_memory(LLAMA)
    for doubled in (replace(LLAMA, micro_batch_size=2), replace(LLAMA, sequence_length=4096)):
        larger = estimate_memory(doubled)
        assert larger.activations == 2 * base.activations
        assert larger.logits == 2 * base.logits


@pytest.mark.parametrize("name", PRESETS)
def test_layers_and_embeddings_sum_to_the_model(name):
    shape = PRESETS[name]
    outside = count_parameters(shape) - shape.num_hidden_layers * count_layer_parameters(shape)
    assert 0 < outside - count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2) <= 2 * shape.hidden_size


def test_only_adapters_have_gradients_and_optimiser_state():
    """The frozen model is bf16: two bytes a parameter."""
    adapted = replace(LLAMA, scheme="none", lora=LoraSpec(r=8))
    trained, estimate = count_trained(adapted.shape, LoraSpec(r=8)), estimate_memory(adapted)
    assert (estimate.gradients, estimate.optimizer) == (4 * trained, 8 * trained)
    assert estimate.parameters == 2 * COUNT + 4 * trained
    assert estimate_memory(replace(adapted, scheme="zero-3", world_size=1)).optimizer == 12 * trained


def test_quantised_model_has_half_a_byte_a_weight():
    """A rank that does not divide the blocks of scales holds them whole."""
    plain, adapted = (replace(LLAMA, lora=LoraSpec(quantize=form), local_world_size=8, world_size=8) for form in (None, "nf4"))
    quantized = LLAMA.shape.num_hidden_layers * sum(x.inputs * x.outputs for x in list_linear_layers(LLAMA.shape))
    packed = quantized * (1 / 2 + 1 / 64 + 2 / (64 * 256))
    saved = estimate_memory(plain).parameters - estimate_memory(adapted).parameters
    assert saved == pytest.approx((2 * quantized - packed) / 8, rel=1e-6)
    undivided = estimate_memory(replace(adapted, world_size=7, local_world_size=7))
    assert undivided.parameters > packed > estimate_memory(adapted).parameters


def test_7b_model_needs_sharding():
    """16 bytes per parameter do not fit one 80 GiB GPU; sharded over eight, with activation checkpointing, they do."""
    single = replace(LLAMA, scheme="none", world_size=1, local_world_size=1)
    assert estimate_memory(single).peak > 80 * GIB
    sharded = replace(LLAMA, world_size=8, activation_checkpointing=True)
    assert 12 * GIB < estimate_memory(sharded).peak < 24 * GIB


def test_model_in_a_folder_has_no_estimate():
    spec = TrainSpec(model="./weights", data="-", max_steps=1)
    assert make_setup(spec, world_size=1, local_world_size=1) is None


def test_disk_offload_has_no_estimate():
    spec = TrainSpec(model="tiny-llama", data="-", max_steps=1, strategy="deepspeed", zero_stage=3, disk_offload="/scratch")
    assert make_setup(spec, world_size=2, local_world_size=2) is None


def test_setup_has_the_values_of_the_spec():
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=64, micro_batch_size=3, strategy="ddp")
    setup = make_setup(spec, world_size=4, local_world_size=2)
    assert setup is not None
    assert (setup.scheme, setup.tokens, setup.compute_bytes) == ("ddp", 192, 2)


def test_ranks_that_share_samples_divide_the_activations():
    """Keys and values stay whole: with eight ranks a layer keeps more than an eighth, and less than a third."""
    spec = TrainSpec(model="llama-3-8b", data="-", max_steps=1, sequence_length=8192)
    alone, shared = (
        make_setup(spec.model_copy(update={"context_parallel": sharers}), world_size=8, local_world_size=8)
        for sharers in (1, 8)
    )
    assert alone is not None
    assert shared is not None
    assert shared.tokens == alone.tokens // 8
    ratio = estimate_memory(shared).activations / estimate_memory(alone).activations
    assert 1 / 8 < ratio < 1 / 3
    assert estimate_memory(shared).parameters == estimate_memory(alone).parameters


def test_long_samples_are_shared_to_save_memory():
    spec = TrainSpec(model="llama-3.2-1b", data="-", max_steps=1, sequence_length=65536, activation_checkpointing=True)
    long, short = (
        make_setup(spec.model_copy(update={"sequence_length": length}), world_size=8, local_world_size=8)
        for length in (65536, 8192)
    )
    assert long is not None
    assert short is not None
    assert any("`context_parallel: 2`" in change for change in describe_savings(long))
    assert not any("context_parallel" in change for change in describe_savings(short))


def test_number_of_ranks_that_cannot_share_samples_has_no_row():
    spec = TrainSpec(model="tiny-llama", data="-", max_steps=1, context_parallel=4)
    assert list_rows(spec, world_size=2, local_world_size=2) == []
    names = {row.name for row in list_rows(spec, world_size=4, local_world_size=4)}
    assert {"ddp", "full", "zero-3"} <= names
    assert not names & {"none", "dp"}
