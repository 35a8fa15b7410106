"""Runs on every kind of data: the loss of padded and packed samples on any number of ranks, and evaluations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kfjob.trainer.data.stream import ShuffledStream
from kfjob.trainer.evaluate import is_evaluation_due
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_run import TOLERANCE, losses


@pytest.fixture(scope="module")
def chat(tiny, chat_folder):
    """A spec with conversations of 8 to 90 tokens; about half of them have a loss."""
    return tiny | {"data": str(chat_folder), "data_format": "chat", "sequence_length": 96, "lr": 1e-3}


@pytest.mark.parametrize(
    ("packing", "steps"),
    [("documents", 12), *(pytest.param(kind, 50, marks=pytest.mark.long) for kind in ("pad", "documents"))],
)
def test_loss_does_not_depend_on_ranks_or_accumulation(workers, chat, packing, steps):
    """Micro-batches have different numbers of targets: a mean of means would differ by 0.01."""
    spec = chat | {"packing": packing, "max_steps": steps, "sequence_length": 96 if packing == "pad" else 128}
    (reference,) = workers.run("run_training", {"spec": spec | {"strategy": "none", "micro_batch_size": 8}})
    for world_size, change in (
        (1, {"strategy": "none", "micro_batch_size": 2, "gradient_accumulation_steps": 4}),
        (2, {"strategy": "ddp", "micro_batch_size": 1, "gradient_accumulation_steps": 4}),
        (2, {"strategy": "fsdp", "micro_batch_size": 2, "gradient_accumulation_steps": 2}),
    ):
        results = workers.run("run_training", {"spec": spec | change}, world_size=world_size)
        assert losses(results[0]) == pytest.approx(losses(reference), abs=TOLERANCE, rel=0)
    assert losses(reference)[-1] < losses(reference)[0] - 0.3


@pytest.mark.parametrize("packing", ["stream", "documents"])
def test_evaluation_is_bit_exact_on_any_number_of_ranks(workers, tiny, packing):
    """21 samples in batches of 2: the last batch is half full, and four ranks have unequal numbers of batches."""
    spec = tiny | {"eval_every": 1, "eval_batches": 11, "eval_batch_size": 2, "packing": packing, "sequence_length": 64}
    ((loss, tokens),) = workers.run("run_evaluation", {"spec": spec | {"strategy": "none"}})
    for world_size, strategy in ((2, "ddp"), (2, "fsdp"), (4, "fsdp")):
        results = workers.run("run_evaluation", {"spec": spec | {"strategy": strategy}}, world_size=world_size)
        assert results == [[loss, tokens]] * world_size


def due_steps(steps, **spec):
    parsed = TrainSpec(model="micro-llama", data="-", max_steps=steps, sequence_length=8, **spec)
    data = ShuffledStream([np.zeros((2, 8), np.int64)] * 100, seed=1, rank=0, world_size=2)
    due = []
    for step in range(1, steps + 1):
        data.read_batch(4)
        due += [step] if is_evaluation_due(step, parsed, 8, data) else []
    return due


def test_evaluations_per_epoch_are_due_at_equal_shares():
    """100 samples in batches of 8: an epoch ends within the 13th step, its middle is in the 7th."""
    assert due_steps(26, evals_per_epoch=2) == [7, 13, 19, 25]
    assert due_steps(26, evals_per_epoch=1, eval_every=10) == [10, 13, 20, 25]
    assert due_steps(26) == []
    assert due_steps(4, evals_per_epoch=100) == [1, 2, 3, 4]  # at most one after each step


def test_epochs_count_samples(workers, tiny, tokenised_chat, tmp_path):
    """With a smaller global batch from the third step on, the run reads the whole epoch, and nothing twice."""
    spec = tiny | {"data": str(tokenised_chat), "sequence_length": 96, "strategy": "none", "max_steps": None, "epochs": 1}
    spec |= {"micro_batch_size": 8}
    (plain,) = workers.run("run_training", {"spec": spec})
    spec |= {"checkpoint_dir": str(tmp_path), "evals_per_epoch": 2, "eval_batches": 1}
    (first,) = workers.run("run_training", {"spec": spec, "stop_after": 2})
    (second,) = workers.run("run_training", {"spec": spec | {"micro_batch_size": 4}})
    samples = [[sample for batch in result["batches"] for sample in batch] for result in (plain, first, second)]
    resumed = samples[1][:16] + samples[2]
    assert len(set(resumed)) == len(resumed)
    assert resumed[: len(samples[0])] == samples[0]
    assert second["outcome"]["step"] == 2 + len(samples[2]) // 4
    steps = [step for step, _, _ in second["evaluations"]]
    assert steps == [round(2 + (len(resumed) / 2 - 16) / 4), second["outcome"]["step"]]


def test_data_works_without_datasets_and_pyarrow(tiny, tokenised_folder, tmp_path):
    """Text, tokenised and synthetic data need only torch and transformers."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "for name in ('datasets', 'pyarrow', 'pandas', 'accelerate'):\n"
        "    sys.modules[name] = None\n"
        "from kfjob.trainspec.train_spec import TrainSpec\n"
        "from kfjob.trainer.data.sources import open_data\n"
        "for data in sys.argv[2:]:\n"
        "    spec = TrainSpec.model_validate_json(sys.argv[1]).model_copy(update={'data': data})\n"
        "    print(open_data(spec, rank=0, world_size=1).train.read_batch(2).shape)\n"
    )
    spec = TrainSpec(**tiny | {"eval_every": 1}).model_dump_json()
    process = subprocess.run(
        [sys.executable, program, spec, tiny["data"], str(tokenised_folder), "synthetic"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[2],
        env={"PYTHONPATH": "."},
    )
    assert (process.stdout, process.stderr) == ("(2, 2, 16)\n" * 3, "")
