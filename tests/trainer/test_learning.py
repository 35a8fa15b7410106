"""The loss goes where it should: on real text, where transformers' own Trainer brings it with the same budget."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kfjob.spec.models import PRESETS
from kfjob.trainer import tokenize
from kfjob.trainer.data import tiny_text
from kfjob.trainer.data.blocks import open_split

STEPS, BATCH, LENGTH, LR, WARMUP, DECAY = 120, 16, 128, 5e-3, 10, 0.1


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """The language reference and the documentation strings of the standard library, a twentieth of it held out."""
    text = tiny_text.make(tmp_path_factory.mktemp("real") / "text")
    plan, folder, _ = tokenize.plan_of([str(text), str(text.parent / "tokens")])
    tokenize.tokenize(plan, folder, workers=1)
    return folder


@pytest.mark.parametrize(
    ("model", "steps"), [("micro-llama", STEPS), pytest.param("tiny-llama", 400, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_a_model_learns_as_much_as_with_transformers_trainer(workers, tokens, tmp_path, model, steps):
    spec = {
        "model": model,
        "vocab_size": 2048,
        "data": str(tokens),
        "sequence_length": LENGTH,
        "precision": "fp32",
        "strategy": "none",
        "micro_batch_size": BATCH,
        "max_steps": steps,
        "lr": LR,
        "min_lr": 0.0,
        "warmup_steps": WARMUP,
        "weight_decay": DECAY,
        "eval_every": steps,
        "eval_batches": 10_000,
    }
    (result,) = workers.run("trained", {"spec": spec})
    ((_, count, ours),) = result["evaluations"]
    theirs, their_count = of_transformers(model, blocks(tokens, "train"), blocks(tokens, "validation"), steps, tmp_path)
    assert count == their_count
    assert ours < result["losses"]["1"] - 2
    assert ours == pytest.approx(theirs, rel=0.02)


def blocks(folder, split):
    """All tokens in rows of LENGTH + 1; Trainer's models shift labels themselves."""
    stored = open_split(folder, split).tokens
    count = (len(stored) - 1) // LENGTH
    return [np.asarray(stored[row * LENGTH : row * LENGTH + LENGTH + 1]).astype(np.int64) for row in range(count)]


def of_transformers(model, train, held_out, steps, folder):
    """(held-out loss, tokens) after the same number of steps with the same optimiser and schedule."""
    from transformers import LlamaForCausalLM, Trainer, TrainingArguments
    from transformers.models.llama import LlamaConfig

    from kfjob.trainer.model import config_arguments

    shape = PRESETS[model].model_copy(update={"vocab_size": 2048})
    torch.manual_seed(5)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=BATCH,
        learning_rate=LR,
        lr_scheduler_type="cosine",
        warmup_steps=WARMUP,
        weight_decay=DECAY,
        adam_beta1=0.9,
        adam_beta2=0.95,
        adam_epsilon=1e-8,
        max_grad_norm=1.0,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_pin_memory=False,
        seed=5,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(LlamaConfig(**config_arguments(shape))),
        args=arguments,
        train_dataset=[{"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(row)} for row in train],
        eval_dataset=[{"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(row)} for row in held_out],
    )
    trainer.train()
    return trainer.evaluate()["eval_loss"], len(held_out) * LENGTH
