"""The losses of every strategy on one, two and four ranks equal those of one process; with the same order of additions they are
bit-exact.

Every comparison with one process prints its largest difference (pytest -s).
"""

from __future__ import annotations

import sys
from functools import cache

import pytest

from tests.trainer.conftest import save_tiny_llama
from tests.trainer.test_run import global_batches, losses

TOLERANCE = 2e-6
"""Tolerance between strategies, in fp32. A loss of 4 to 8 is a multiple of 4.8e-7. The order of additions may differ for
gradients, the terms of their norm, and the losses of micro-batches and ranks: four units in the last place."""
GLOBAL_BATCH = 8
"""Samples in an optimiser step."""

FSDP: dict[str, object] = {"strategy": "fsdp"}
ZERO: list[dict[str, object]] = [{"strategy": "deepspeed", "zero_stage": stage} for stage in range(4)]
MULTI_RANK: list[dict[str, object]] = [
    {"strategy": "ddp"},
    FSDP | {"sharding": "full"},
    FSDP | {"sharding": "shard_grad_op"},
    FSDP | {"sharding": "hybrid", "shard_size": 2},
    FSDP | {"sharding": "hybrid_shard_grad_op", "shard_size": 2},
    FSDP | {"sharding": "no_shard"},
    FSDP | {"accumulate": "whole"},
    FSDP | {"activation_checkpointing": True},
    *ZERO,
]
ONE_RANK: list[dict[str, object]] = [{"strategy": "none"}, {"strategy": "dp"}]


def split_batch(ranks, micro):
    return {"micro_batch_size": micro, "gradient_accumulation_steps": GLOBAL_BATCH // ranks // micro}


def case_id(value):
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.fixture(scope="module")
def spec_of(tiny, chat_folder):
    """Returns a spec with text, or with conversations (about half of the tokens have a loss), padded or packed."""
    chat = {"data": str(chat_folder), "data_format": "chat"}
    changes = {
        "stream": {},
        "pad": chat | {"packing": "pad", "sequence_length": 96},
        "documents": chat | {"packing": "documents", "sequence_length": 128},
    }
    return lambda data: tiny | {"lr": 1e-3} | changes[data]


@pytest.fixture(scope="module")
def reference_of(workers, spec_of):
    """Returns the result of one process without accumulation."""
    cache = {}

    def get_reference(data, steps, **changes):
        key = (data, steps, *changes.items())
        if key not in cache:
            spec = spec_of(data) | {"strategy": "none", "micro_batch_size": GLOBAL_BATCH, "max_steps": steps} | changes
            (cache[key],) = workers.run("run_training", {"spec": spec})
        return cache[key]

    return get_reference


def largest_difference(workers, spec, reference, ranks):
    """Check that the samples are equal, and return the largest difference of any loss on any rank."""
    results = workers.run("run_training", {"spec": spec}, world_size=ranks)
    assert global_batches(results) == global_batches([reference])
    assert all(len(result["losses"]) == spec["max_steps"] for result in results)
    pairs = [pair for result in results for pair in zip(losses(result), losses(reference), strict=True)]
    largest = max(abs(loss - expected) for loss, expected in pairs)
    sys.stdout.write(f"largest difference: {largest:.1e}\n")
    return largest


@pytest.mark.parametrize(
    ("data", "change"),
    [
        ("pad", {"strategy": "ddp"} | split_batch(4, 1)),
        ("documents", FSDP | split_batch(4, 2)),
        ("stream", FSDP | {"sharding": "hybrid", "shard_size": 2} | split_batch(4, 1)),
        ("pad", ZERO[3] | split_batch(4, 1)),
    ],
    ids=case_id,
)
def test_four_ranks_have_the_losses_of_one(workers, spec_of, reference_of, data, change):
    spec = spec_of(data) | {"max_steps": 6} | change
    assert largest_difference(workers, spec, reference_of(data, 6), 4) <= TOLERANCE


LORA: dict[str, object] = {"lora": {"r": 4, "lora_alpha": 8, "use_rslora": True}}
LORA_CASES: list[tuple[str, dict[str, object]]] = [
    ("stream", {"strategy": "none"} | split_batch(1, 4)),
    ("stream", {"strategy": "ddp"} | split_batch(2, 4)),
    ("documents", FSDP | split_batch(2, 2)),
]
ALL_CASES: list[tuple[str, dict[str, object]]] = [
    (data, change | split_batch(1 if change in ONE_RANK else 2, micro))
    for data in ("stream", "pad", "documents")
    for change in (*ONE_RANK, *MULTI_RANK)
    for micro in (1, 4)
]
LONG_LORA_CASES = [pytest.param(*case, marks=pytest.mark.long) for case in ALL_CASES]


@pytest.fixture(scope="module")
def lora_spec_of(spec_of, tmp_path_factory):
    """Returns a spec with adapters of a base with pretrained weights."""
    folder = save_tiny_llama(tmp_path_factory.mktemp("base") / "model")
    return lambda data: spec_of(data) | LORA | {"model": folder, "vocab_size": None, "lr": 1e-2, "max_steps": 5}


@pytest.fixture(scope="module")
def peft_losses_of(workers, lora_spec_of):
    """Returns the losses of PEFT in a plain loop."""

    @cache
    def get_losses(data):
        spec = lora_spec_of(data) | {"strategy": "none", "micro_batch_size": GLOBAL_BATCH}
        (expected,) = workers.run("train_peft_by_hand", {"spec": spec})
        return expected

    return get_losses


@pytest.mark.parametrize(("data", "change"), [*LORA_CASES, *LONG_LORA_CASES], ids=case_id)
def test_adapters_have_the_losses_of_peft_by_hand(workers, lora_spec_of, peft_losses_of, data, change):
    spec = lora_spec_of(data) | change
    ranks = GLOBAL_BATCH // (spec["micro_batch_size"] * spec["gradient_accumulation_steps"])
    for result in workers.run("run_training", {"spec": spec}, world_size=ranks):
        assert losses(result) == pytest.approx(peft_losses_of(data), abs=TOLERANCE, rel=0)


CONTEXT_CASES: list[tuple[str, dict[str, object]]] = [
    ("stream", FSDP | {"context_parallel": 2} | split_batch(1, 4)),
    ("documents", {"strategy": "ddp", "context_parallel": 2} | split_batch(2, 2)),
]
LONG_CONTEXT_CASES = [
    pytest.param(data, change | {"context_parallel": sharers} | split_batch(ranks // sharers, micro), marks=pytest.mark.long)
    for data in ("stream", "pad", "documents")
    for change in MULTI_RANK
    for ranks, sharers in ((2, 2), (4, 2), (4, 4))
    for micro in (1, 4 if ranks > sharers else 8)
]


@pytest.mark.parametrize(("data", "change"), [*CONTEXT_CASES, *LONG_CONTEXT_CASES], ids=case_id)
def test_ranks_that_share_samples_have_the_losses_of_one(workers, spec_of, reference_of, data, change):
    spec = spec_of(data) | {"max_steps": 6} | change
    groups = GLOBAL_BATCH // (spec["micro_batch_size"] * spec["gradient_accumulation_steps"])
    ranks = groups * spec["context_parallel"]
    results = workers.run("run_training", {"spec": spec}, world_size=ranks)
    expected = reference_of(data, 6)
    assert global_batches(results[:: change["context_parallel"]]) == global_batches([expected])
    for result in results:
        assert losses(result) == pytest.approx(losses(expected), abs=TOLERANCE, rel=0)


EXPERT_CASES: list[tuple[str, str, dict[str, object]]] = [
    ("micro-mixtral", "stream", {"strategy": "none"} | split_batch(1, 4)),
    ("micro-qwen3-moe", "documents", {"strategy": "ddp"} | split_batch(2, 2)),
    ("micro-mixtral", "documents", FSDP | split_batch(2, 2)),
    ("micro-qwen3-moe", "pad", ZERO[3] | split_batch(2, 4)),
]
LONG_EXPERT_CASES = [
    pytest.param(model, *case, marks=pytest.mark.long) for model in ("micro-mixtral", "micro-qwen3-moe") for case in ALL_CASES
]


@pytest.mark.parametrize(("model", "data", "change"), [*EXPERT_CASES, *LONG_EXPERT_CASES], ids=case_id)
def test_experts_have_the_losses_of_transformers_by_hand(workers, spec_of, model, data, change):
    """The loss of the router depends on the micro-batches, so each division of the batch has its own reference."""
    spec = spec_of(data) | {"model": model, "max_steps": 5, "router_aux_loss_coef": 0.02} | change
    ranks = GLOBAL_BATCH // (spec["micro_batch_size"] * spec["gradient_accumulation_steps"])
    (expected,) = workers.run("train_experts_by_hand", {"spec": spec, "world_size": ranks})
    for result in workers.run("run_training", {"spec": spec}, world_size=ranks):
        assert losses(result) == pytest.approx(expected, abs=TOLERANCE, rel=0)


FLOAT8_TOLERANCE = 2e-3
"""Tolerance in fp8: after another order of additions a value near a rounding boundary of bf16 or fp8 is rounded differently."""
FLOAT8_CASES: list[tuple[str, str, dict[str, object]]] = [
    ("tensorwise", "stream", {"strategy": "none"} | split_batch(1, 4)),
    ("rowwise", "documents", {"strategy": "ddp"} | split_batch(2, 2)),
    ("tensorwise", "pad", FSDP | split_batch(2, 2)),
]
LONG_FLOAT8_CASES = [
    pytest.param(recipe, *case, marks=pytest.mark.long)
    for recipe in ("tensorwise", "rowwise")
    for case in ALL_CASES
    if case[1]["strategy"] != "deepspeed"
]


@pytest.mark.parametrize(("recipe", "data", "change"), [*FLOAT8_CASES, *LONG_FLOAT8_CASES], ids=case_id)
def test_emulated_fp8_has_the_losses_of_torchao_by_hand(workers, spec_of, recipe, data, change):
    """A scale is that of a micro-batch, so each division of the batch has its own reference."""
    float8 = {"precision": "fp8", "fp8_emulate": True, "fp8_recipe": recipe}
    spec = spec_of(data) | float8 | {"max_steps": 5} | change
    ranks = GLOBAL_BATCH // (spec["micro_batch_size"] * spec["gradient_accumulation_steps"])
    (expected,) = workers.run("train_float8_by_hand", {"spec": spec, "world_size": ranks})
    results = workers.run("run_training", {"spec": spec}, world_size=ranks)
    difference = max(abs(loss - other) for result in results for loss, other in zip(losses(result), expected, strict=True))
    sys.stdout.write(f"fp8 | {recipe} | {data} | {case_id(change)} | {difference:.1e}\n")
    assert difference <= FLOAT8_TOLERANCE


@pytest.mark.long
@pytest.mark.parametrize("change", ONE_RANK + MULTI_RANK, ids=case_id)
@pytest.mark.parametrize("data", ["pad", "stream", "documents"])
def test_every_strategy_for_fifty_steps(workers, spec_of, reference_of, change, data):
    """Each strategy on 1, 2 and 4 ranks, with the largest micro-batches and with micro-batches of one sample."""
    differences = {}
    for ranks in (1,) if change in ONE_RANK else (1, 2, 4):
        if ranks % change.get("shard_size", 1):
            continue
        for micro in (GLOBAL_BATCH // ranks, 1):
            spec = spec_of(data) | {"max_steps": 50} | change | split_batch(ranks, micro)
            differences[f"{ranks} x {micro}"] = largest_difference(workers, spec, reference_of(data, 50), ranks)
    sys.stdout.write(
        " | ".join([data, case_id(change), *(f"{layout}: {difference:.1e}" for layout, difference in differences.items())])
        + "\n"
    )
    assert max(differences.values()) <= TOLERANCE


@pytest.mark.parametrize(
    "change",
    [*ONE_RANK, *(change for change in MULTI_RANK if "shard_size" not in change and change not in ZERO[1:])],
    ids=case_id,
)
def test_one_rank_is_bit_exact(workers, spec_of, reference_of, change):
    """On one rank the order of additions is the same, except in DeepSpeed's stages 1 to 3, which use flat gradients."""
    spec = spec_of("stream") | {"max_steps": 6} | change | split_batch(1, GLOBAL_BATCH)
    assert largest_difference(workers, spec, reference_of("stream", 6), 1) == 0


@pytest.mark.parametrize(
    "change", [change for change in MULTI_RANK[1:] if change not in (FSDP | {"accumulate": "whole"}, ZERO[3])], ids=case_id
)
def test_two_ranks_are_bit_exact_without_clipping(workers, spec_of, change):
    """Addition of two values is commutative, so only clipping, which adds squares of shards, differs. Stage 3 is excluded:
    it differs in the last place.
    """
    spec = spec_of("stream") | {"max_steps": 6, "grad_clip": 0.0} | split_batch(2, 4)
    first = workers.run("run_training", {"spec": spec | {"strategy": "ddp"}}, world_size=2)
    assert largest_difference(workers, spec | change, first[0] | {"batches": merge_ranks(first)}, 2) == 0


def merge_ranks(results):
    """Return the samples of all ranks as one rank would read them."""
    return [[sample for part in parts for sample in part] for parts in zip(*(r["batches"] for r in results), strict=True)]
