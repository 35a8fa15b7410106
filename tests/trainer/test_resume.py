"""Stopped at any step and resumed is never stopped, to the bit; on other numbers of ranks and into other strategies the samples
are the same ones, and the losses near.
"""

from __future__ import annotations

import random
import sys

import pytest

from tests.trainer.test_equal import FSDP, ZERO
from tests.trainer.test_run import global_batches, losses, same_state, stopped_and_resumed

WAYS = {
    "ddp": (2, {"strategy": "ddp"}),
    "fsdp": (2, FSDP),
    "hsdp": (4, FSDP | {"sharding": "hybrid", "shard_size": 2}),
    **{f"zero-{stage}": (2, change) for stage, change in enumerate(ZERO)},
}
LONG = [
    pytest.param((way, precision, data), marks=pytest.mark.long)
    for way in WAYS
    for precision in ("fp32", "bf16")
    for data in ("shuffled", "packed")
]
SHORT = [
    ("hsdp", "fp32", "packed"),
    ("zero-0", "bf16", "shuffled"),
    ("zero-1", "fp32", "shuffled"),
    ("zero-2", "bf16", "packed"),
    ("zero-3", "fp32", "packed"),
    ("zero-3", "bf16", "shuffled"),
]
NEAR = {"fp32": 1e-6, "bf16": 1e-3}
"""Of a chain of world sizes. In fp32 two steps of a loss of 4 to 8, which is a multiple of 4.8e-7; bf16 has 2.6 digits, and a
mean over many tokens one or two more."""


@pytest.fixture(scope="module")
def spec_of(tiny, chat_folder):
    packed = {"data": str(chat_folder), "data_format": "chat", "packing": "documents", "sequence_length": 128}
    return lambda data: tiny | {"lr": 1e-3} | ({} if data == "shuffled" else packed)


@pytest.mark.parametrize("case", [*SHORT, *LONG], ids=" ".join)
def test_a_stop_at_any_step_changes_no_bit(workers, spec_of, tmp_path, case):
    way, precision, data = case
    ranks, change = WAYS[way]
    spec = spec_of(data) | change | {"precision": precision, "micro_batch_size": 8 // ranks}
    stop = random.Random(" ".join(case)).randint(1, 5)  # noqa: S311 -- any step
    whole, read, end = stopped_and_resumed(workers, spec, [(ranks, None)], folder=tmp_path / "whole")
    parts, met, outcome = stopped_and_resumed(workers, spec, [(ranks, stop), (ranks, None)], folder=tmp_path / "parts")
    assert (end["step"], outcome["step"]) == (6, 6)
    assert parts == whole
    assert met == read
    assert same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)


CHAINS: dict[str, list[dict[str, object]]] = {
    "ddp": [{"strategy": "ddp"}] * 4,
    "fsdp": [FSDP] * 4,
    "zero-1": [ZERO[1]] * 4,
    "zero-3": [ZERO[3]] * 4,
    "none-zero-3-fsdp-zero-1": [{"strategy": "none"}, ZERO[3], FSDP, ZERO[1]],
    "fsdp-zero-2-ddp-fsdp": [FSDP, ZERO[2], {"strategy": "ddp"}, FSDP],
}
SHORT_CHAINS = [("none-zero-3-fsdp-zero-1", "fp32", "packed"), ("fsdp-zero-2-ddp-fsdp", "bf16", "shuffled")]
LONG_CHAINS = [
    pytest.param((chain, precision, data), marks=pytest.mark.long)
    for chain in CHAINS
    for precision in NEAR
    for data in ("shuffled", "packed")
]


@pytest.mark.parametrize("case", [*SHORT_CHAINS, *LONG_CHAINS], ids=" ".join)
def test_one_rank_then_two_then_four_then_one(workers, spec_of, tmp_path, case):
    """The global batch of 8 is kept by accumulation; every sample is the one that a single rank would have read."""
    chain, precision, data = case
    spec = spec_of(data) | {"precision": precision, "max_steps": 8, "micro_batch_size": 2, "gradient_accumulation_steps": 4}
    (reference,) = workers.run("run_training", {"spec": spec | CHAINS[chain][0]})
    found: dict[str, float] = {}
    batches: list[list[str]] = []
    for change, ranks, steps in zip(CHAINS[chain], (1, 2, 4, 1), (2, 2, 2, None), strict=True):
        part, read, outcome = stopped_and_resumed(workers, spec | change, [(ranks, steps)], folder=tmp_path)
        found |= part
        batches += read
    assert outcome["step"] == 8
    assert batches == global_batches([reference])
    most = max(abs(one - other) for one, other in zip(found.values(), losses(reference), strict=True))
    sys.stdout.write(f"{chain} | {precision} | {data} | {most:.1e}\n")
    assert most <= NEAR[precision]
