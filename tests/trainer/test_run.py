"""Whole runs on one rank and two: every strategy computes the same; stopped and resumed is the same as never stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

SAME = 2e-6
"""Of a loss near 6 in fp32 this is what the order of additions may change; measured: 1e-6."""


@pytest.fixture(scope="module")
def reference(workers, tiny):
    """One process, a global batch of 8 in one piece."""
    (result,) = workers.run("run_training", {"spec": tiny | {"strategy": "none", "micro_batch_size": 8}})
    return result


def losses(result):
    return list(result["losses"].values())


def global_batches(results):
    """The hashes of the samples of all ranks, in blocks of 8."""
    rounds = zip(*(result["batches"] for result in results), strict=True)
    samples = [sample for parts in rounds for part in parts for sample in part]
    return [sorted(samples[begin : begin + 8]) for begin in range(0, len(samples), 8)]


def test_the_reference_learns(reference):
    assert losses(reference)[0] == pytest.approx(5.77, abs=0.15)  # ln 320
    assert losses(reference)[-1] < losses(reference)[0] - 0.5


@pytest.mark.parametrize(
    ("sizes", "change"),
    [
        ((1, 1), {"strategy": "none", "micro_batch_size": 1, "gradient_accumulation_steps": 8}),
        ((1, 1), {"strategy": "fsdp", "micro_batch_size": 8}),
        ((2, 2), {"strategy": "ddp"}),
        ((2, 2), {"strategy": "ddp", "micro_batch_size": 1, "gradient_accumulation_steps": 4}),
        ((2, 2), {"strategy": "fsdp"}),
        ((2, 2), {"strategy": "fsdp", "micro_batch_size": 2, "gradient_accumulation_steps": 2}),
        ((2, 2), {"strategy": "fsdp", "sharding": "shard_grad_op"}),
        ((2, 2), {"strategy": "fsdp", "sharding": "hybrid"}),
        ((2, 1), {"strategy": "fsdp", "sharding": "hybrid"}),
        ((2, 2), {"strategy": "fsdp", "activation_checkpointing": True}),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_every_strategy_computes_the_same(workers, tiny, reference, sizes, change):
    world_size, local_world_size = sizes
    results = workers.run("run_training", {"spec": tiny | change}, world_size=world_size, local_world_size=local_world_size)
    assert global_batches(results) == global_batches([reference])
    for result in results:
        assert losses(result) == pytest.approx(losses(reference), abs=SAME, rel=0)


def test_sharding_over_one_rank_changes_no_bit(workers, tiny):
    (sharded,) = workers.run("run_training", {"spec": tiny | {"strategy": "fsdp"}})
    (copied,) = workers.run("run_training", {"spec": tiny | {"strategy": "ddp"}})
    assert losses(sharded) == losses(copied)


def test_activation_checkpointing_changes_no_bit(workers, tiny):
    kept, recomputed = (
        workers.run("run_training", {"spec": tiny | {"strategy": "none", "activation_checkpointing": on}})[0]
        for on in (False, True)
    )
    assert losses(kept) == losses(recomputed)


def test_bf16_is_near(workers, tiny, reference):
    for strategy, world_size in (("fsdp", 2), ("ddp", 2)):
        spec = tiny | {"strategy": strategy, "precision": "bf16"}
        result = workers.run("run_training", {"spec": spec}, world_size=world_size)[0]
        assert losses(result) == pytest.approx(losses(reference), abs=0.03, rel=0)
        assert losses(result) != losses(reference)


@pytest.mark.parametrize("model", ["micro-neox", "micro-qwen-tied"])
def test_other_families_train_alike_sharded_and_whole(workers, tiny, model):
    shape = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    family = {
        "micro-neox": {"architecture": "gpt_neox", "rotary_pct": 0.25},
        "micro-qwen-tied": {"architecture": "qwen2", "num_key_value_heads": 2, "tie_word_embeddings": True},
    }[model]
    spec = tiny | {"model": shape | family, "vocab_size": None}
    (whole,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    sharded = workers.run("run_training", {"spec": spec | {"strategy": "fsdp"}}, world_size=2)[0]
    assert losses(sharded) == pytest.approx(losses(whole), abs=SAME, rel=0)


def test_each_of_two_ranks_holds_half(workers, tiny):
    spec = tiny | {"strategy": "fsdp"}
    (alone,) = workers.run("count_local_elements", {"spec": spec})
    halves = workers.run("count_local_elements", {"spec": spec}, world_size=2)
    assert alone["optimizer"] == 2 * alone["parameters"]
    for half in halves:
        assert half == {"parameters": alone["parameters"] // 2, "optimizer": alone["parameters"], "dtypes": ["torch.float32"]}


def test_bf16_keeps_parameters_and_optimiser_in_fp32(workers, tiny):
    for strategy in ("fsdp", "none"):
        (held,) = workers.run("count_local_elements", {"spec": tiny | {"strategy": strategy, "precision": "bf16"}})
        assert held["dtypes"] == ["torch.float32"]


def test_evaluation_does_not_depend_on_the_number_of_ranks(workers, tiny):
    """21 samples on two ranks in batches of 4: the last round leaves one rank without any."""
    spec = tiny | {"eval_every": 1, "eval_batches": 21, "micro_batch_size": 1}
    ((loss, tokens),) = workers.run("run_evaluation", {"spec": spec | {"strategy": "none"}})
    assert tokens == 21 * 16
    for result in workers.run("run_evaluation", {"spec": spec | {"strategy": "fsdp"}}, world_size=2):
        assert result == [pytest.approx(loss, abs=SAME), tokens]


def test_a_failure_of_one_rank_is_known_to_all(workers):
    assert workers.run("fail_some_ranks", {"failing": [1]}, world_size=2) == [
        "rank 1 reports an error",
        "rank 1 has no data",
    ]
    assert workers.run("fail_some_ranks", {"failing": [0, 1]}, world_size=2) == [
        "rank 0 has no data",
        "rank 0 reports an error",
    ]
    assert workers.run("fail_some_ranks", {"failing": []}, world_size=2) == ["no error", "no error"]


def stopped_and_resumed(workers, spec, stages, *, folder):
    """Run `spec` in stages of (world size, steps before the stop); losses by step, the global batches, the last outcome."""
    found: dict[str, float] = {}
    batches: list[list[str]] = []
    outcome = None
    for world_size, steps in stages:
        arguments = {"spec": spec | {"checkpoint_dir": str(folder)}, "stop_after": steps, "only_rank": world_size - 1}
        results = workers.run("run_training", arguments, world_size=world_size)
        found |= results[0]["losses"]
        read = global_batches(results)
        batches += read[:steps] if steps is not None else read  # the batch that was drawn when the stop came is not used
        outcome = results[0]["outcome"]
    return found, batches, outcome


@pytest.mark.parametrize(
    "change",
    [
        {"strategy": "fsdp"},
        {"strategy": "fsdp", "precision": "bf16", "data": "tokenised"},
        {"strategy": "ddp", "gradient_accumulation_steps": 2, "micro_batch_size": 2},
    ],
    ids=["fsdp", "fsdp-bf16-tokenised", "ddp-accumulated"],
)
def test_resuming_changes_no_bit(workers, tiny, tokenised_folder, tmp_path, change):
    spec = tiny | change | ({"data": str(tokenised_folder)} if "data" in change else {})
    whole, all_batches, end = stopped_and_resumed(workers, spec, [(2, None)], folder=tmp_path / "whole")
    parts, met_batches, outcome = stopped_and_resumed(workers, spec, [(2, 2), (2, 3), (2, None)], folder=tmp_path / "parts")
    assert parts == whole
    assert met_batches == all_batches
    assert outcome["outcome"] == end["outcome"] == "finished"
    assert same_state(end["checkpoint"], outcome["checkpoint"], tmp_path)


def same_state(one, other, folder):
    """Whether two checkpoints have the same bits of weights and optimiser."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    flat = []
    for number, path in enumerate((one, other)):
        dcp_to_torch_save(path, folder / f"{number}.pt")
        state = torch.load(folder / f"{number}.pt", weights_only=True)
        tensors = {("model", name): tensor for name, tensor in state["model"].items()}
        tensors |= {(n, k): v for n, values in state["optimizer"]["state"].items() for k, v in values.items()}
        flat.append(tensors)
    assert len(flat[0]) > 60
    assert flat[0].keys() == flat[1].keys()
    return all(torch.equal(flat[0][key], flat[1][key]) for key in flat[0])


@pytest.mark.parametrize("strategies", [("fsdp", "fsdp", "fsdp"), ("none", "ddp", "fsdp")])
def test_the_number_of_ranks_may_change(workers, tiny, reference, tmp_path, strategies):
    """1 -> 2 -> 1 ranks, from one strategy to another: the global batch stays, by accumulation, and so do the samples."""
    spec = tiny | {"micro_batch_size": 4, "gradient_accumulation_steps": 2}
    found: dict[str, float] = {}
    batches: list[list[str]] = []
    for strategy, world_size, steps in zip(strategies, (1, 2, 1), (2, 2, None), strict=True):
        part, read, outcome = stopped_and_resumed(
            workers, spec | {"strategy": strategy}, [(world_size, steps)], folder=tmp_path
        )
        found |= part
        batches += read
    assert outcome["step"] == 6
    assert batches == global_batches([reference])
    assert list(found.values()) == pytest.approx(losses(reference), abs=SAME, rel=0)


def test_a_stop_is_kept_with_its_reason(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(tmp_path)}
    results = workers.run("run_training", {"spec": spec, "stop_after": 3, "only_rank": 1}, world_size=2)
    for result in results:
        assert result["outcome"] | {"loss": None} == {
            "outcome": "stopped",
            "step": 3,
            "loss": None,
            "checkpoint": str(tmp_path / "step-000003"),
            "reason": "signal",
        }


def test_a_finished_run_is_not_run_again(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path)}
    first, second = (workers.run("run_training", {"spec": spec})[0] for _ in range(2))
    assert second["losses"] == {}
    assert second["outcome"] == first["outcome"]


def test_only_the_newest_checkpoints_are_kept(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(tmp_path), "checkpoint_every": 1, "keep_last": 2}
    workers.run("run_training", {"spec": spec}, world_size=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000005", "step-000006"]


def test_every_so_many_are_kept_for_ever(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "fsdp", "checkpoint_dir": str(tmp_path), "checkpoint_every": 1, "keep_last": 1, "keep_every": 2}
    workers.run("run_training", {"spec": spec | {"max_steps": 5}}, world_size=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000004", "step-000005"]


def test_other_data_is_read_from_its_beginning(workers, tiny, tmp_path):
    spec = tiny | {"strategy": "none", "checkpoint_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec, "stop_after": 2})
    (moved,) = workers.run("run_training", {"spec": spec | {"seed": 5}})
    (fresh,) = workers.run("run_training", {"spec": spec | {"seed": 5, "checkpoint_dir": None}})
    assert moved["batches"][:4] == fresh["batches"][:4]


@pytest.mark.parametrize(
    ("world_size", "change", "message"),
    [
        (2, {"strategy": "none"}, "strategy `none` needs one process, this run has 2"),
        (2, {"lanes": 3}, "3 lanes cannot be divided among 2 ranks"),
        (
            1,
            {"vocab_size": 256},
            "the data has a vocabulary of 300, the model's embedding 256 rows\n  --> model\nhint: set `vocab_size: 320`",
        ),
        (1, {"model": "/nowhere/at-all", "vocab_size": None}, "no model at `/nowhere/at-all`"),
        (1, {"lr": 1e30, "grad_clip": 0, "max_steps": 20, "warmup_steps": 0}, " is nan at step"),
        (1, {"resume": "/nowhere/step-000001"}, "`/nowhere/step-000001` has no readable manifest.json"),
    ],
)
def test_runs_that_cannot_be_are_refused(workers, tiny, world_size, change, message):
    said = workers.run("error_of_training", {"spec": tiny | change}, world_size=world_size)
    assert message in said[0]


def test_a_checkpoint_of_another_shape_is_refused_with_what_differs(workers, tiny, tmp_path):
    spec = tiny | {"checkpoint_dir": str(tmp_path)}
    workers.run("run_training", {"spec": spec, "stop_after": 1})
    (said,) = workers.run("error_of_training", {"spec": spec | {"vocab_size": 384}})
    assert "error: step-000001 is of a model of another shape" in said
    assert "model.embed_tokens.weight: [320, 32] in the checkpoint, [384, 32] in the model" in said


def test_a_global_batch_that_cannot_be_kept_is_refused(workers, tiny, tmp_path):
    spec = tiny | {"checkpoint_dir": str(tmp_path), "micro_batch_size": 4}
    workers.run("run_training", {"spec": spec | {"strategy": "none"}, "stop_after": 1})
    said = workers.run("error_of_training", {"spec": spec}, world_size=2)
    assert "a global batch of 4 samples cannot be kept with 2 ranks" in said[0]


def test_epochs_end_with_the_data(workers, tiny, tokenised_folder):
    tokens = json.loads((Path(tokenised_folder) / "tokens.json").read_text())["tokens"]["train"]
    spec = tiny | {"strategy": "none", "data": str(tokenised_folder), "sequence_length": 64, "max_steps": None, "epochs": 2}
    (result,) = workers.run("run_training", {"spec": spec})
    assert result["outcome"]["step"] == 2 * ((tokens - 1) // 64) // 4
    samples = [sample for batch in result["batches"] for sample in batch]
    assert {samples.count(sample) for sample in samples} <= {1, 2}
