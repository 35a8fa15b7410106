"""Evaluation lines beside lines of common trainers: they become the evaluation curve, and never the training loss."""

from __future__ import annotations

import pytest

from tests.unit.joblog.general_formats import LOSSES, STEPS, Values, repeat
from tests.unit.joblog.test_general import differences, read

AT_50: dict[str, float | None] = {"step": 50, "loss": 1.98, "first_loss": 2.91, "evaluation_loss": 3.3}
WITHOUT_STEP: dict[str, float | None] = {"step": None, "loss": 1.98, "evaluation_loss": 3.3, "speed": None}
LOGS: dict[str, tuple[list[str], Values]] = {
    "hugging-face": (
        repeat(
            "{{'loss': {l}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.{s}}}\n"
            "{{'eval_loss': 3.3, 'eval_runtime': 1.2, 'eval_samples_per_second': 12.5, 'epoch': 0.{s}}}"
        ),
        WITHOUT_STEP,
    ),
    "hugging-face with quoted numbers": (
        repeat(
            "{{'loss': '{l}', 'grad_norm': '1.0', 'learning_rate': '5e-05', 'epoch': '0.{s}'}}\n"
            "{{'eval_loss': '3.3', 'eval_runtime': '1.2', 'eval_samples_per_second': '12.5', 'epoch': '0.{s}'}}"
        ),
        WITHOUT_STEP,
    ),
    "hugging-face with bars": (
        [
            "***** Running training *****",
            *repeat(
                " 10%|█         | {s}/200 [00:01<00:09,  4.50it/s]\n{{'loss': {l}, 'learning_rate': 5e-05, 'epoch': 0.{s}}}\n"
                "  50%|█████     | 1/2 [00:01<00:09,  4.50it/s]\n{{'eval_loss': 3.3, 'eval_runtime': 1.2, 'epoch': 0.{s}}}"
            ),
        ],
        AT_50 | {"total": 200},
    ),
    "lightning": (
        repeat(
            "Epoch 1: 100%|███| {s}/200 [00:10<01:30,  2.00it/s, v_num=0, train_loss={l}]\n"
            "Validation DataLoader 0: 100%|███| 4/4 [00:00<00:00, 9.5it/s, val_loss=3.5]\n"
            "Epoch 1: 100%|███| {s}/200 [00:10<01:30,  2.00it/s, v_num=0, train_loss={l}, val_loss=3.3]"
        ),
        AT_50,
    ),
    "lightning with rich": (
        repeat("Epoch 1/9 ━━━━━━ {s}/200 0:00:10 • 0:00:30 2.0it/s v_num: 0.000 train_loss: {l} val_loss: 3.3"),
        AT_50 | {"total": 200},
    ),
    "lightning with a table": (
        repeat(
            "Epoch 1: 100%|███| {s}/200 [00:10<01:30,  2.00it/s, loss={l}]\n"
            "┃      Validate metric      ┃       DataLoader 0        ┃\n│         val_loss          │           3.3           │"
        ),
        AT_50,
    ),
    "megatron": (
        repeat(
            " [2026-02-03 04:05:06] iteration       {s}/     200 | consumed samples:  5120 |"
            " elapsed time per iteration (ms): 500.0 | learning rate: 1.0E-04 | global batch size:    16 | lm loss: {l}E+00 |\n"
            " validation loss at iteration {s} | lm loss value: 3.3E+00 | lm loss PPL: 2.7E+01 |"
        ),
        AT_50 | {"speed": 2.0},
    ),
    "nanogpt": (repeat("step {s}: train loss {l}, val loss 3.3\niter {s}: loss {l}, time 12.1ms, mfu 1.1%"), AT_50),
    "nanochat": (
        repeat("step {s}/200 (1.00%) | loss: {l} | dt: 12.1ms | tok/sec: 812 |\nStep {s} | Validation bpb: 3.3"),
        AT_50,
    ),
    "torchtitan": (
        repeat("step: {s}  loss: {l}  memory: 1.2GiB(10.0%)  tps: 812\nvalidate step: {s}  loss: 3.3  memory: 1.2GiB  tps: 99"),
        AT_50 | {"speed": 812},
    ),
    "llama-recipes": (
        repeat(
            "Training Epoch: 1/3, step {s}/200 completed (loss: {l}): 10%|█| {s}/200 [00:01<00:09, 4.5it/s]\n"
            "evaluating Epoch: 100%|███| 4/4 [00:00<00:00, 9.5it/s]\n eval_ppl=tensor(27.1) eval_epoch_loss=tensor(3.3)"
        ),
        AT_50,
    ),
    "reference": (
        repeat("Batch {s} Loss: {l}, Speed: 8.00 samples/sec, lr: 0.000100\nBatch {s} Validation loss: 3.3"),
        AT_50 | {"speed": 8.0},
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_evaluation_is_no_training_loss(name: str):
    lines, expected = LOGS[name]
    training = read(lines).training
    assert differences(training, expected) == {}
    assert {point.loss for point in training.evaluations} == {3.3}
    assert {point.loss for point in training.curve} <= set(LOSSES)


def test_bar_repeats_the_newest_evaluation():
    bar = "Epoch 1: 50%|███| {}/200 [00:10<01:30,  2.00it/s, train_loss={}, val_loss={}]"
    lines = [bar.format(step, loss, 3.3 if step < 30 else 3.1) for step, loss in zip(STEPS, LOSSES, strict=True)]
    assert [(point.step, point.loss) for point in read(lines).training.evaluations] == [(10, 3.3), (30, 3.1)]


def test_longer_bar_follows_one_that_did_not_end():
    lines = ["***** Running training *****"]
    lines += [f" 10%|█  | {step}/{total} [00:01<00:09,  4.50it/s]" for total, step in ((100, 10), (200, 10), (200, 11))]
    assert (read(lines).training.step, read(lines).training.total) == (11, 200)


STEP = "step {s} | loss: {l} | lr 1.0e-04 | norm: 1.5 | dt: 338.38ms | tok/sec: 1512.9"


@pytest.mark.parametrize("layout", [STEP, "step {s} | loss {l} | lr 1e-4"])
def test_evaluation_before_the_first_step_counts(layout: str):
    steps = repeat(layout)
    training = read(["validation loss: 10.9231", *steps]).training
    assert differences(training, {"loss": 1.98, "evaluation_loss": 10.9231, "step": 50}) == {}
    assert read(["validation loss: 10.9231"]).training.evaluation_loss is None
