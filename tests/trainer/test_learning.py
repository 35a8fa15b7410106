"""On real text the loss falls as far as with transformers' Trainer in the same number of steps.

Both start with the same weights and read the same samples, because in so few steps another seed changes the loss by some per
cent.
"""

from __future__ import annotations

import json
import logging
from pydoc_data import topics

import numpy as np
import pytest
import torch

from kfjob.trainer import tokenize
from kfjob.trainer.data import tiny_text
from kfjob.trainer.data.sources import open_data
from kfjob.trainer.model import build_model
from kfjob.trainer.strategies import make_strategy
from kfjob.trainspec.train_spec import TrainSpec
from tests.trainer.test_model import SINGLE_RANK

log = logging.getLogger(__name__)
SMALL = {
    "model": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "initializer_range": 0.06,
    },
    "sequence_length": 64,
    "micro_batch_size": 8,
    "lr": 1e-2,
    "max_steps": 120,
}
TINY = {"model": "tiny-llama", "sequence_length": 128, "micro_batch_size": 16, "lr": 3e-3, "max_steps": 200}


def write_language_reference(folder):
    """Write the text that `help()` shows, with a tokenizer of 512 tokens; it takes seconds."""
    texts = list(topics.topics.values())
    (folder / "tokenizer").mkdir(parents=True)
    for split, part in (("train", texts[4:]), ("validation", texts[:4])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in part))
    tiny_text.train_tokenizer(texts[4:], folder / "tokenizer", vocab_size=512)
    return folder


@pytest.mark.parametrize(
    ("make_text", "size", "below"),
    [(write_language_reference, SMALL, 5.0), pytest.param(tiny_text.build_dataset, TINY, 5.5, marks=pytest.mark.long)],
    ids=["short", "long"],
)
def test_loss_is_close_to_that_of_transformers_trainer(workers, tmp_path, make_text, size, below):
    plan, tokens, _ = tokenize.parse_arguments([str(make_text(tmp_path / "text")), str(tmp_path / "tokens")])
    tokenize.tokenize(plan, tokens, workers=1)
    spec = {
        "data": str(tokens),
        "precision": "fp32",
        "strategy": "none",
        "min_lr": 0.0,
        "warmup_steps": 10,
        "eval_every": size["max_steps"],
        "eval_batches": 10_000,
        **size,
    }
    (result,) = workers.run("run_training", {"spec": spec})
    ((_, eval_tokens, actual),) = result["evaluations"]
    reference, reference_tokens = train_with_transformers(TrainSpec(**spec), tmp_path / "reference")
    log.info("held-out loss: trainer %.4f, transformers' Trainer %.4f", actual, reference)
    assert eval_tokens == reference_tokens
    assert actual < below < result["losses"]["1"] - 1
    assert actual == pytest.approx(reference, rel=0.02)


def train_with_transformers(spec, folder):
    """Return (validation loss, number of targets) of transformers' Trainer with our initial weights, samples and settings."""
    from transformers import Trainer, TrainingArguments

    unchunked = spec.model_copy(update={"loss_chunk": 0})
    data = open_data(spec, rank=0, world_size=1)
    trainer = Trainer(
        model=build_model(unchunked, make_strategy(unchunked, SINGLE_RANK), SINGLE_RANK.device),
        train_dataset=[add_labels(sample) for sample in data.train.read_batch(spec.max_steps * spec.micro_batch_size)],
        eval_dataset=[add_labels(sample) for sample in data.validation],
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=spec.max_steps,
            per_device_train_batch_size=spec.micro_batch_size,
            per_device_eval_batch_size=spec.micro_batch_size,
            train_sampling_strategy="sequential",
            learning_rate=spec.lr,
            lr_scheduler_type="cosine",
            warmup_steps=spec.warmup_steps,
            weight_decay=spec.weight_decay,
            adam_beta2=spec.betas[1],
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
    )
    trainer.train()
    return trainer.evaluate()["eval_loss"], len(data.validation) * spec.sequence_length


def add_labels(sample):
    """Return the inputs and the last target; transformers' models shift labels themselves."""
    row = torch.from_numpy(np.append(sample[0], sample[1, -1]))
    return {"input_ids": row, "labels": row}
