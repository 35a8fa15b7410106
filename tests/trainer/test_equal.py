"""On one rank, two or four, however the global batch is cut and whoever holds what, the loss curve is that of one process; and
where additions happen in the same order it is the same to the bit.

Every long test prints the largest difference that it has seen (pytest -s).
"""

from __future__ import annotations

import sys

import pytest

from tests.trainer.test_run import global_batches, losses

NEAR = 2e-6
"""Between strategies, in fp32. A loss of 4 to 8 is a multiple of 4.8e-7; what may differ is the order in which gradients, the
terms of their norm, and the losses of micro-batches and ranks are added: two such steps this way or that, and one of doubt."""
GLOBAL = 8
"""Samples in a step."""

FSDP: dict[str, object] = {"strategy": "fsdp"}
ZERO: list[dict[str, object]] = [{"strategy": "deepspeed", "zero_stage": stage} for stage in range(4)]
SHARED: list[dict[str, object]] = [
    {"strategy": "ddp"},
    FSDP | {"sharding": "full"},
    FSDP | {"sharding": "shard_grad_op"},
    FSDP | {"sharding": "hybrid", "shard_size": 2},
    FSDP | {"sharding": "hybrid_shard_grad_op", "shard_size": 2},
    FSDP | {"sharding": "no_shard"},
    FSDP | {"accumulate": "sharded"},
    FSDP | {"activation_checkpointing": True},
    *ZERO,
]
ALONE: list[dict[str, object]] = [{"strategy": "none"}, {"strategy": "dp"}]


def cut(ranks, micro):
    return {"micro_batch_size": micro, "gradient_accumulation_steps": GLOBAL // ranks // micro}


def said(value):
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


@pytest.fixture(scope="module")
def spec_of(tiny, chat_folder):
    """Text without gaps; conversations, of which about half counts, one in a sample or packed."""
    chat = {"data": str(chat_folder), "data_format": "chat"}
    changes = {
        "stream": {},
        "pad": chat | {"packing": "pad", "sequence_length": 96},
        "documents": chat | {"packing": "documents", "sequence_length": 128},
    }
    return lambda data: tiny | {"lr": 1e-3} | changes[data]


@pytest.fixture(scope="module")
def reference_of(workers, spec_of):
    """One process, the global batch in one piece."""
    known = {}

    def reference(data, steps, **more):
        key = (data, steps, *more.items())
        if key not in known:
            spec = spec_of(data) | {"strategy": "none", "micro_batch_size": GLOBAL, "max_steps": steps} | more
            (known[key],) = workers.run("run_training", {"spec": spec})
        return known[key]

    return reference


def furthest(workers, spec, reference, ranks):
    """The largest difference of any loss on any rank, after a look at the samples."""
    results = workers.run("run_training", {"spec": spec}, world_size=ranks)
    assert global_batches(results) == global_batches([reference])
    assert all(len(result["losses"]) == spec["max_steps"] for result in results)
    return max(abs(ours - one) for result in results for ours, one in zip(losses(result), losses(reference), strict=True))


@pytest.mark.parametrize(
    ("data", "change"),
    [
        ("pad", {"strategy": "ddp"} | cut(4, 1)),
        ("documents", FSDP | cut(4, 2)),
        ("stream", FSDP | {"sharding": "hybrid", "shard_size": 2} | cut(4, 1)),
        ("stream", ZERO[1] | cut(4, 2)),
        ("pad", ZERO[3] | cut(4, 1)),
    ],
    ids=said,
)
def test_four_ranks_compute_what_one_does(workers, spec_of, reference_of, data, change):
    spec = spec_of(data) | {"max_steps": 6} | change
    assert furthest(workers, spec, reference_of(data, 6), 4) <= NEAR


@pytest.mark.long
@pytest.mark.parametrize("change", ALONE + SHARED, ids=said)
@pytest.mark.parametrize("data", ["pad", "stream", "documents"])
def test_fifty_steps_of_everything(workers, spec_of, reference_of, change, data):
    """Each strategy on 1, 2 and 4 ranks, in micro-batches as large as can be and of one sample: 1 x 8 to 8 x 1."""
    seen = {}
    for ranks in (1,) if change in ALONE else (1, 2, 4):
        if ranks % change.get("shard_size", 1):
            continue
        for micro in (GLOBAL // ranks, 1):
            spec = spec_of(data) | {"max_steps": 50} | change | cut(ranks, micro)
            seen[f"{ranks} x {micro}"] = furthest(workers, spec, reference_of(data, 50), ranks)
    sys.stdout.write(" | ".join([data, said(change), *(f"{way}: {most:.1e}" for way, most in seen.items())]) + "\n")
    assert max(seen.values()) <= NEAR


@pytest.mark.parametrize(
    "change", [*ALONE, *(change for change in SHARED if "shard_size" not in change and change not in ZERO[1:])], ids=said
)
def test_alone_no_bit_differs(workers, spec_of, reference_of, change):
    """One rank has nothing to add up in another order; DeepSpeed's stages 1 to 3 alone take the norm of flat gradients."""
    spec = spec_of("stream") | {"max_steps": 12} | change | cut(1, GLOBAL)
    assert furthest(workers, spec, reference_of("stream", 12), 1) == 0


@pytest.mark.parametrize(
    "change", [change for change in SHARED[1:] if change not in (FSDP | {"accumulate": "sharded"}, ZERO[3])], ids=said
)
def test_of_two_ranks_no_bit_differs_but_for_the_norm(workers, spec_of, change):
    """a + b is b + a, so without clipping, which adds the squares of shards, all agree; stage 3 by the last place only."""
    spec = spec_of("stream") | {"max_steps": 12, "grad_clip": 0.0} | cut(2, 4)
    first = workers.run("run_training", {"spec": spec | {"strategy": "ddp"}}, world_size=2)
    assert furthest(workers, spec | change, first[0] | {"batches": halves(first)}, 2) == 0


def halves(results):
    """The samples of both ranks, as one that has all would have read them."""
    return [[sample for part in parts for sample in part] for parts in zip(*(r["batches"] for r in results), strict=True)]
