"""Complete runs on one and two ranks: every strategy gives the same losses, and so does a stopped and resumed run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.trainer.conftest import SHAPE

TOLERANCE = 2e-6
"""The change that the order of additions may cause in a loss near 6 in fp32; measured: 1e-6."""


@pytest.fixture(scope="module")
def reference(workers, tiny):
    """One process with a global batch of 8 and no accumulation."""
    (result,) = workers.run("run_training", {"spec": tiny | {"strategy": "none", "micro_batch_size": 8}})
    return result


def losses(result):
    return list(result["losses"].values())


def global_batches(results):
    """Return the sample hashes of all ranks, in global batches of 8."""
    batches = zip(*(result["batches"] for result in results), strict=True)
    samples = [sample for parts in batches for part in parts for sample in part]
    return [sorted(samples[begin : begin + 8]) for begin in range(0, len(samples), 8)]


def test_two_nodes_with_hybrid_sharding_give_the_same_losses(workers, tiny, reference):
    spec = tiny | {"strategy": "fsdp", "sharding": "hybrid"}
    results = workers.run("run_training", {"spec": spec}, world_size=2, local_world_size=1)
    assert global_batches(results) == global_batches([reference])
    for result in results:
        assert losses(result) == pytest.approx(losses(reference), abs=TOLERANCE, rel=0)


@pytest.mark.parametrize(
    "family",
    [
        {"architecture": "gpt_neox", "rotary_pct": 0.25},
        {"architecture": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    ],
    ids=lambda family: family["architecture"],
)
def test_other_families_give_the_same_losses_sharded(workers, tiny, family):
    spec = tiny | {"model": SHAPE | family, "vocab_size": None}
    (unsharded,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    sharded = workers.run("run_training", {"spec": spec | {"strategy": "fsdp"}}, world_size=2)[0]
    assert losses(sharded) == pytest.approx(losses(unsharded), abs=TOLERANCE, rel=0)


def test_two_ranks_hold_half_each(workers, tiny):
    spec = tiny | {"strategy": "fsdp"}
    (single,) = workers.run("measure_bytes", {"spec": spec})
    for half in workers.run("measure_bytes", {"spec": spec}, world_size=2):
        assert half["parameters"] == single["parameters"] / 2
        assert half["optimizer"] == pytest.approx(single["parameters"], rel=0.01)  # two moments in fp32


def test_failure_of_one_rank_fails_all(workers):
    assert workers.run("fail_some_ranks", {"failing": [1]}, world_size=2) == [
        "rank 1 reports an error",
        "rank 1 has no data",
    ]
    assert workers.run("fail_some_ranks", {"failing": [0, 1]}, world_size=2) == [
        "rank 0 has no data",
        "rank 0 reports an error",
    ]
    assert workers.run("fail_some_ranks", {"failing": []}, world_size=2) == ["no error", "no error"]


def run_in_stages(workers, spec, stages, *, folder):
    """Run stages of (world size, steps before the stop); return losses by step, global batches, and the last outcome."""
    stage_losses: dict[str, float] = {}
    batches: list[list[str]] = []
    outcome = None
    for world_size, steps in stages:
        arguments = {"spec": spec | {"checkpoint_dir": str(folder)}, "stop_after": steps, "only_rank": world_size - 1}
        results = workers.run("run_training", arguments, world_size=world_size)
        stage_losses |= results[0]["losses"]
        stage_batches = global_batches(results)
        batches += stage_batches[:steps] if steps is not None else stage_batches  # the batch read before the stop is unused
        outcome = results[0]["outcome"]
    return stage_losses, batches, outcome


def have_same_state(first, second, folder):
    """Return whether the weights and the optimiser state of two checkpoints are bit-exact."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    states = []
    for number, path in enumerate((first, second)):
        dcp_to_torch_save(path, folder / f"{number}.pt")
        state = torch.load(folder / f"{number}.pt", weights_only=True)
        tensors = {("model", name): tensor for name, tensor in state["model"].items()}
        tensors |= {(n, k): v for n, values in state["optimizer"]["state"].items() for k, v in values.items()}
        states.append(tensors)
    assert len(states[0]) > 60
    assert states[0].keys() == states[1].keys()
    return all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_finished_run_is_not_repeated(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path)}
    first = workers.run("run_training", {"spec": spec})[0]
    written = (tmp_path / "step-000006").stat().st_ino
    second = workers.run("run_training", {"spec": spec})[0]
    assert second["losses"] == {}
    assert (tmp_path / "step-000006").stat().st_ino == written
    assert second["outcome"] == first["outcome"]
    assert "Note step 6 of 6 is done: raise `max_steps` or `epochs` to train on" in workers.log()


def test_keep_every_keeps_multiples(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(tmp_path), "checkpoint_every": 1, "keep_last": 1, "keep_every": 2}
    workers.run("run_training", {"spec": spec | {"max_steps": 5}}, world_size=2)
    assert sorted(path.name for path in tmp_path.glob("*step*")) == ["step-000002", "step-000004", "step-000005"]


def test_changed_data_is_read_from_its_beginning(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec, "stop_after": 2})
    (changed,) = workers.run("run_training", {"spec": spec | {"seed": 5}})
    (fresh,) = workers.run("run_training", {"spec": spec | {"seed": 5, "checkpoint_dir": None}})
    assert changed["batches"][:4] == fresh["batches"][:4]


@pytest.mark.parametrize(
    ("world_size", "change", "message"),
    [
        (2, {"strategy": "none"}, "strategy `none` needs one process, this run has 2"),
        (
            1,
            {"vocab_size": 256},
            "the data has a vocabulary of 300, the model's embedding 256 rows\n  --> model\nhint: set `vocab_size: 320`",
        ),
        (1, {"model": "/nowhere/at-all", "vocab_size": None}, "no model at `/nowhere/at-all`"),
    ],
)
def test_invalid_run_is_an_error(workers, tiny, world_size, change, message):
    messages = workers.run("error_of_training", {"spec": tiny | change}, world_size=world_size)
    assert message in messages[0]


def test_checkpoint_with_other_shapes_is_an_error(workers, tiny, tmp_path):
    spec = tiny | {"checkpoint_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec, "stop_after": 1})
    (message,) = workers.run("error_of_training", {"spec": spec | {"vocab_size": 384}})
    assert "error: step-000001 is of a model of another shape" in message
    assert "model.embed_tokens.weight: [320, 32] in the checkpoint, [384, 32] in the model" in message


def test_kept_global_batch_is_said(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "ddp", "checkpoint_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec, "stop_after": 1}, world_size=2)
    workers.run("run_training", {"spec": spec | {"max_steps": 2}})
    line = "Global batch stays 8 samples, as in step-000001: 2 micro-batches a step on each rank instead of 1"
    assert line in workers.log()


def test_indivisible_global_batch_is_an_error(workers, tiny, tmp_path):
    spec = tiny | {"checkpoint_dir": str(tmp_path), "micro_batch_size": 4}
    workers.run("run_training", {"spec": spec | {"strategy": "none"}, "stop_after": 1})
    messages = workers.run("error_of_training", {"spec": spec}, world_size=2)
    assert "a global batch of 4 samples cannot be kept with 2 ranks" in messages[0]


def test_speed_counts_neither_evaluations_nor_saves_nor_roll_backs(workers, tiny, tmp_path):
    """A step has 4 samples and takes 1 s. The third one is taken twice, because its loss is NaN the first time."""
    spec = tiny | {"strategy": "none", "eval_every": 1, "checkpoint_every": 1, "checkpoint_dir": str(tmp_path / "c")}
    (speeds,) = workers.run("record_speeds", {"spec": spec | {"on_nan": "roll_back", "max_steps": 5}, "nan_at": 3})
    assert speeds == [[1, 4.0], [2, 4.0], [3, 2.0], [4, 4.0], [5, 4.0]]


def test_run_ends_after_its_epochs(workers, tiny, tokenised_folder):
    tokens = json.loads((Path(tokenised_folder) / "tokens.json").read_text())["tokens"]["train"]
    spec = tiny | {"strategy": "none", "data": str(tokenised_folder), "sequence_length": 64, "max_steps": None, "epochs": 2}
    (result,) = workers.run("run_training", {"spec": spec})
    assert result["outcome"]["step"] == 2 * ((tokens - 1) // 64) // 4
    samples = [sample for batch in result["batches"] for sample in batch]
    assert {samples.count(sample) for sample in samples} <= {1, 2}


def test_garbage_is_collected_at_the_same_steps_on_all_ranks(workers, tiny):
    spec = tiny | {"strategy": "ddp", "model": "micro-llama", "max_steps": 52, "log_every": 1}
    assert workers.run("record_collections", {"spec": spec}, world_size=2) == [[1, 51], [1, 51]]


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "fsdp"},
        pytest.param({"strategy": "ddp"}, marks=pytest.mark.long),
        pytest.param({"strategy": "none", "packing": "documents"}, marks=pytest.mark.long),
    ],
)
def test_host_waits_for_the_device_only_in_logged_steps(workers, tiny, change):
    """Step 1, each third step and the last one are logged; a guard reads the loss of every step."""
    spec = tiny | change | {"max_steps": 7, "log_every": 3}
    world_size = 1 if change["strategy"] == "none" else 2
    for reads in workers.run("count_host_reads", {"spec": spec}, world_size=world_size):
        assert [bool(count) for count in reads] == [True, False, True, False, False, True, True]
    for reads in workers.run("count_host_reads", {"spec": spec | {"on_nan": "skip"}}, world_size=world_size):
        assert all(reads)


def test_stop_between_logged_steps_has_the_loss_of_its_last_step(workers, tiny):
    spec = tiny | {"strategy": "ddp", "micro_batch_size": 2}
    expected = workers.run("run_training", {"spec": spec}, world_size=2)[0]["losses"]["4"]
    for result in workers.run("run_training", {"spec": spec | {"log_every": 10}, "stop_after": 4}, world_size=2):
        assert (result["outcome"]["step"], result["outcome"]["loss"]) == (4, expected)


def test_each_step_of_each_rank_has_its_own_seed_and_trains(workers, tiny):
    """An evaluation between two steps leaves the model in training mode."""
    spec = tiny | {"strategy": "ddp", "max_steps": 3, "eval_every": 1, "eval_batches": 1}
    results = workers.run("seeds_and_modes", {"spec": spec}, world_size=2)
    assert [len(batches) for batches in results] == [3, 3]
    assert len({seed for batches in results for seed, _ in batches}) == 6
    assert all(is_training for batches in results for _, is_training in batches)
