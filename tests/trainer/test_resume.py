"""A run that stops at any step resumes bit-exactly; with another world size or strategy it reads the same samples, and its
losses are close.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from kfjob.trainer.manifest import Manifest
from tests.trainer.test_equal import FSDP, ZERO
from tests.trainer.test_run import global_batches, have_same_state, losses, run_in_stages

STRATEGIES = {
    "ddp": (2, {"strategy": "ddp"}),
    "fsdp": (2, FSDP),
    "hsdp": (4, FSDP | {"sharding": "hybrid", "shard_size": 2}),
    **{f"zero-{stage}": (2, change) for stage, change in enumerate(ZERO)},
}
LONG = [
    pytest.param((name, precision, data), marks=pytest.mark.long)
    for name in STRATEGIES
    for precision in ("fp32", "bf16")
    for data in ("shuffled", "packed")
]
LONG += [
    pytest.param((name, "fp8", data), marks=pytest.mark.long)
    for name in ("ddp", "fsdp", "hsdp")
    for data in ("shuffled", "packed")
]
SHORT = [  # LONG has all combinations of strategies, the other precisions and kinds of data
    ("fsdp", "bf16-true", "shuffled"),
    ("ddp", "fp16", "shuffled"),
    ("zero-2", "bf16", "packed"),
]
TOLERANCES = {"fp32": 1e-6, "bf16": 1e-3}
"""Tolerances of a chain of world sizes. fp32: two units in the last place of a loss of 4 to 8, 4.8e-7 each; bf16 has 2.6
digits, and a mean over many tokens one or two more."""


@pytest.fixture(scope="module")
def spec_of(tiny, chat_folder):
    packed = {"data": str(chat_folder), "data_format": "chat", "packing": "documents", "sequence_length": 128}
    return lambda data: tiny | {"lr": 1e-3} | ({} if data == "shuffled" else packed)


@pytest.mark.parametrize("case", [*SHORT, *LONG], ids=" ".join)
def test_resume_from_any_step_is_bit_exact(workers, spec_of, tmp_path, case):
    name, precision, data = case
    ranks, change = STRATEGIES[name]
    spec = spec_of(data) | change | {"precision": precision, "micro_batch_size": 8 // ranks, "fp8_emulate": precision == "fp8"}
    stop = random.Random(" ".join(case)).randint(1, 5)  # noqa: S311 -- any step
    expected, all_batches, end = run_in_stages(workers, spec, [(ranks, None)], folder=tmp_path / "whole")
    resumed, batches, outcome = run_in_stages(workers, spec, [(ranks, stop), (ranks, None)], folder=tmp_path / "parts")
    assert (end["step"], outcome["step"]) == (6, 6)
    assert resumed == expected
    assert batches == all_batches
    assert have_same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)
    scales = [Manifest.read(Path(path)).loss_scale for path in (end["checkpoint"], outcome["checkpoint"])]
    assert scales[0] == scales[1]  # with fp16 it counts the steps since its last change
    assert bool(scales[0]) == (precision == "fp16")


@pytest.mark.parametrize(("stage", "ranks"), [(1, 1), *(pytest.param(stage, 2, marks=pytest.mark.long) for stage in (2, 3))])
def test_loss_scale_of_deepspeed_is_restored(workers, tiny, tmp_path, stage, ranks):
    """The gradients of steps 2 and 3 overflow, and the second overflow halves the scale."""
    spec = tiny | ZERO[stage] | {"precision": "fp16", "micro_batch_size": 8 // ranks, "checkpoint_dir": str(tmp_path / "whole")}
    overflow = {"steps": [2, 3], "loss": False}
    (whole, *_) = workers.run("train_as_on_cpu_with_fp16", {"spec": spec, **overflow}, world_size=ranks)
    spec |= {"checkpoint_dir": str(tmp_path / "parts")}
    (first, *_) = workers.run("train_as_on_cpu_with_fp16", {"spec": spec, **overflow, "stop_after": 4}, world_size=ranks)
    (second, *_) = workers.run("train_as_on_cpu_with_fp16", {"spec": spec}, world_size=ranks)
    assert losses(first) + losses(second) == losses(whole)
    at_stop, resumed, expected = (
        Manifest.read(tmp_path / path).loss_scale for path in ("parts/step-000004", "parts/step-000006", "whole/step-000006")
    )
    assert at_stop == {"cur_scale": 2**15, "cur_iter": 4, "last_overflow_iter": 2, "cur_hysteresis": 1}
    assert resumed == expected == at_stop | {"cur_iter": 6}


def test_loss_scale_of_another_strategy_is_ignored(workers, tiny, tmp_path):
    spec = tiny | {"precision": "fp16", "micro_batch_size": 8, "checkpoint_dir": str(tmp_path)}
    for step, change in enumerate((ZERO[2], {"strategy": "none"}, ZERO[3]), start=1):
        workers.run("train_as_on_cpu_with_fp16", {"spec": spec | change | {"max_steps": step}})
    scales = [Manifest.read(tmp_path / f"step-00000{step}").loss_scale for step in (1, 2, 3)]
    assert [scale.get("cur_iter", scale.get("_growth_tracker")) for scale in scales] == [1, 1, 1]


@pytest.mark.parametrize("name", ["fsdp", pytest.param("zero-2", marks=pytest.mark.long)])
def test_stop_before_the_first_step_is_bit_exact(workers, spec_of, tmp_path, name):
    """The optimiser of the checkpoint has counted no step."""
    ranks, change = STRATEGIES[name]
    spec = spec_of("shuffled") | change | {"micro_batch_size": 8 // ranks}
    expected, *_, end = run_in_stages(workers, spec, [(ranks, None)], folder=tmp_path / "whole")
    resumed, *_, outcome = run_in_stages(workers, spec, [(ranks, 0), (ranks, None)], folder=tmp_path / "parts")
    assert (tmp_path / "parts" / "step-000000").is_dir()
    assert resumed == expected
    assert have_same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)


@pytest.mark.parametrize(
    "name",
    ["ddp", "fsdp", *(pytest.param(name, marks=pytest.mark.long) for name in ("hsdp", "zero-2", "zero-3"))],
)
def test_stop_in_the_middle_of_a_step_is_bit_exact(workers, spec_of, tmp_path, name):
    """The gradients of the finished micro-batches are dropped, and the resumed run reads the samples of the step again."""
    ranks, change = STRATEGIES[name]
    spec = spec_of("shuffled") | change | {"micro_batch_size": 1, "gradient_accumulation_steps": 8 // ranks, "max_steps": 4}
    plain = workers.run("run_training", {"spec": spec}, world_size=ranks)
    spec |= {"checkpoint_dir": str(tmp_path / "c")}
    stopped = workers.run("run_training", {"spec": spec, "stop_after": 2, "micro_batches": 1, "only_rank": 1}, world_size=ranks)
    resumed = workers.run("run_training", {"spec": spec}, world_size=ranks)
    for first, second, expected in zip(stopped, resumed, plain, strict=True):
        assert (first["outcome"]["step"], first["outcome"]["reason"]) == (2, "signal")
        assert losses(first) + losses(second) == losses(expected)
        assert second["batches"] == expected["batches"][2 * 8 // ranks :]


def test_stop_in_the_middle_of_the_first_step_is_bit_exact(workers, spec_of, tmp_path):
    """The optimiser has no state yet, and torch creates none while there are gradients."""
    spec = spec_of("shuffled") | {"strategy": "none", "micro_batch_size": 1, "gradient_accumulation_steps": 4, "max_steps": 2}
    (plain,) = workers.run("run_training", {"spec": spec})
    spec |= {"checkpoint_dir": str(tmp_path / "c")}
    (stopped,) = workers.run("run_training", {"spec": spec, "stop_after": 0, "micro_batches": 2})
    (resumed,) = workers.run("run_training", {"spec": spec})
    assert stopped["outcome"]["checkpoint"] == str(tmp_path / "c" / "step-000000")
    assert losses(resumed) == losses(plain)


@pytest.mark.parametrize("at", [1, pytest.param(3, marks=pytest.mark.long), 5])
def test_evaluation_that_a_stop_interrupted_is_made_up_for(workers, tiny, tmp_path, at):
    """The schedule `plateau` follows the evaluations; step `at` + 1 is the last one for 5."""
    spec = tiny | {"strategy": "ddp", "eval_every": 1, "schedule": "plateau", "plateau_patience": 0, "lr": 0.3, "min_lr": 0.0}
    (plain, _) = workers.run("run_training", {"spec": spec}, world_size=2)
    spec |= {"checkpoint_dir": str(tmp_path / "c")}
    (first, _) = workers.run("run_training", {"spec": spec, "stop_after": at, "micro_batches": 2}, world_size=2)
    assert (first["outcome"]["outcome"], first["outcome"]["step"]) == ("stopped", at + 1)
    (second, _) = workers.run("run_training", {"spec": spec}, world_size=2)
    assert second["outcome"] | {"checkpoint": None} == plain["outcome"]
    assert first["evaluations"] + second["evaluations"] == plain["evaluations"]
    assert losses(first) + losses(second) == losses(plain)
    (third, _) = workers.run("run_training", {"spec": spec}, world_size=2)
    assert (third["evaluations"], third["outcome"]) == ([], second["outcome"])


def test_start_elsewhere_without_a_step_to_take_writes_its_checkpoint(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none"}
    workers.run("run_training", {"spec": spec | {"checkpoint_dir": str(tmp_path / "a")}})
    change = {"checkpoint_dir": str(tmp_path / "b"), "resume": str(tmp_path / "a" / "step-000006"), "max_steps": 4}
    (result,) = workers.run("run_training", {"spec": spec | change})
    assert (result["outcome"]["step"], result["outcome"]["checkpoint"]) == (6, str(tmp_path / "b" / "step-000006"))
    assert [path.name for path in (tmp_path / "b").glob("*step*")] == ["step-000006"]


CHAINS: dict[str, list[dict[str, object]]] = {
    "ddp": [{"strategy": "ddp"}] * 4,
    "fsdp": [FSDP] * 4,
    "zero-1": [ZERO[1]] * 4,
    "zero-3": [ZERO[3]] * 4,
    "none-zero-3-fsdp-zero-1": [{"strategy": "none"}, ZERO[3], FSDP, ZERO[1]],
    "fsdp-zero-2-ddp-fsdp": [FSDP, ZERO[2], {"strategy": "ddp"}, FSDP],
}
LONG_CHAINS = [
    pytest.param((chain, precision, data), marks=pytest.mark.long)
    for chain in CHAINS
    for precision in TOLERANCES
    for data in ("shuffled", "packed")
]


@pytest.mark.parametrize("case", [("none-zero-3-fsdp-zero-1", "fp32", "packed"), *LONG_CHAINS], ids=" ".join)
def test_chain_of_one_two_four_and_one_ranks(workers, spec_of, tmp_path, case):
    """Accumulation keeps the global batch of 8; the samples are those of a run on one rank."""
    chain, precision, data = case
    spec = spec_of(data) | {"precision": precision, "max_steps": 8, "micro_batch_size": 2, "gradient_accumulation_steps": 4}
    (reference,) = workers.run("run_training", {"spec": spec | CHAINS[chain][0]})
    chain_losses: dict[str, float] = {}
    batches: list[list[str]] = []
    for change, ranks, steps in zip(CHAINS[chain], (1, 2, 4, 1), (2, 2, 2, None), strict=True):
        part, part_batches, outcome = run_in_stages(workers, spec | change, [(ranks, steps)], folder=tmp_path)
        chain_losses |= part
        batches += part_batches
    assert outcome["step"] == 8
    assert batches == global_batches([reference])
    pairs = zip(chain_losses.values(), losses(reference), strict=True)
    difference = max(abs(loss - expected) for loss, expected in pairs)
    sys.stdout.write(f"{chain} | {precision} | {data} | {difference:.1e}\n")
    assert difference <= TOLERANCES[precision]
