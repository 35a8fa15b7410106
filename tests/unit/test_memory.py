from __future__ import annotations

from dataclasses import replace

import pytest

from kfjob.spec.memory import MemorySetup, count_layer_parameters, estimate_memory, make_setup
from kfjob.spec.models import PRESETS, count_embedding_parameters, count_parameters
from kfjob.spec.train import TrainSpec
from kfjob.units import GIB

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
    [("zero-0", 16), ("zero-1", 4 + 12 / 64), ("zero-2", 2 + 14 / 64), ("zero-3", 16 / 64)],
)
def test_zero_stages_are_those_of_the_paper(scheme, bytes_a_parameter):
    """Figure 1 of Rajbhandari et al. 2020: 120, 31.4, 16.6 and 1.9 GB for 7.5 billion parameters on 64 GPUs."""
    got = estimate_memory(replace(LLAMA, scheme=scheme))
    assert got.parameters + got.gradients + got.optimizer == pytest.approx(bytes_a_parameter * COUNT, rel=1e-6)


def test_sharing_divides_what_stays():
    alone, shared = (estimate_memory(replace(LLAMA, scheme=scheme, precision="fp32")) for scheme in ("none", "full"))
    assert alone.parameters == 64 * shared.parameters
    assert alone.optimizer == 64 * shared.optimizer == 8 * COUNT
    assert shared.copies < alone.parameters / 16


def test_hybrid_shares_within_a_node():
    assert estimate_memory(replace(LLAMA, scheme="hybrid")).parameters == -(-COUNT * 4 // 8)


def test_micro_batches_that_are_not_exchanged_keep_whole_gradients():
    one, many = (estimate_memory(replace(LLAMA, accumulation=n)) for n in (1, 4))
    assert many.gradients == 4 * COUNT
    assert many.gradients == 64 * one.gradients
    assert many.peak - one.peak > 4 * COUNT * 0.9


def test_offloading_moves_what_stays_to_the_host():
    here, there = (estimate_memory(replace(LLAMA, cpu_offload=offload)) for offload in (False, True))
    moved = here.parameters + here.gradients + here.optimizer
    assert there.parameters == there.gradients == there.optimizer == 0
    assert there.host - here.host == moved
    assert there.copies == here.copies


def test_recomputing_keeps_one_layer_and_the_inputs_of_all():
    kept, recomputed = (estimate_memory(replace(LLAMA, activation_checkpointing=again)) for again in (False, True))
    assert recomputed.activations < kept.activations / 10


def test_memory_grows_with_every_sample_and_token():
    base = estimate_memory(LLAMA)
    for doubled in (replace(LLAMA, micro_batch_size=2), replace(LLAMA, sequence_length=4096)):
        more = estimate_memory(doubled)
        assert more.activations == 2 * base.activations
        assert more.logits == 2 * base.logits


@pytest.mark.parametrize("optimizer", [("adamw", 8), ("momentum", 4), ("sgd", 0)])
def test_optimisers_differ_in_their_states(optimizer):
    assert estimate_memory(replace(LLAMA, scheme="none", optimizer=optimizer[0])).optimizer == optimizer[1] * COUNT


@pytest.mark.parametrize("name", PRESETS)
def test_layers_and_ends_make_the_whole(name):
    shape = PRESETS[name]
    ends = count_parameters(shape) - shape.num_hidden_layers * count_layer_parameters(shape)
    assert 0 < ends - count_embedding_parameters(shape) * (1 if shape.tie_word_embeddings else 2) <= 2 * shape.hidden_size


def test_a_7b_model_as_people_know_it():
    """16 bytes a parameter do not fit one 80 GiB card; shared by eight, with recomputing, they do."""
    alone = replace(LLAMA, scheme="none", world_size=1, local_world_size=1)
    assert estimate_memory(alone).peak > 80 * GIB
    shared = replace(LLAMA, world_size=8, activation_checkpointing=True)
    assert 12 * GIB < estimate_memory(shared).peak < 24 * GIB


def test_a_folder_keeps_its_shape_to_itself():
    spec = TrainSpec(model="./weights", data="-", max_steps=1)
    assert make_setup(spec, world_size=1, local_world_size=1) is None


def test_there_is_no_formula_for_what_is_in_files():
    spec = TrainSpec(model="tiny-llama", data="-", max_steps=1, strategy="deepspeed", zero_stage=3, disk_offload="/scratch")
    assert make_setup(spec, world_size=2, local_world_size=2) is None


def test_the_trainers_arguments_are_read():
    spec = TrainSpec(model="micro-llama", data="-", max_steps=1, sequence_length=64, micro_batch_size=3, strategy="ddp")
    setup = make_setup(spec, world_size=4, local_world_size=2)
    assert setup is not None
    assert (setup.scheme, setup.tokens, setup.compute_bytes) == ("ddp", 192, 2)
