"""Kinds of lines whose structure says what a number is, where its name does not."""

from __future__ import annotations

import pytest

from tests.unit.joblog.test_general import read


def test_range_of_batches_ends_at_its_last_batch():
    lines = [f"Epoch 2 Batch: [{step}-{step + 9}] Loss: {9 - step / 1000}" for step in (1, 11, 21)]
    assert read(lines).training.step == 30


def test_rows_that_are_not_of_training_are_evaluation():
    rows = [
        f"0.{n} | {loss} | {n} | {train} | 00:02" for n in (1, 2, 3) for loss, train in ((2 - n / 8, True), (3 - n / 8, False))
    ]
    training = read(["accuracy | loss | epoch | train | time", *rows]).training
    assert (training.epoch, training.loss, training.evaluation_loss) == (3, 1.625, 2.625)


def test_batches_within_epochs_show_training_whatever_they_measure():
    training = read([f"[Epoch 1/20] [Batch {n}/790] [pixel: {9 - n / 8} ] ETA: 0:10:09" for n in (10, 20, 30)]).training
    assert (training.step, training.epoch, training.loss) == (30, 1, None)


def test_loss_of_precision_is_no_loss():
    assert not read(
        [f"[{n}/30] converted shard {n}: 1204 samples, loss of precision 0.00{n}" for n in range(10, 30)]
    ).training.lines


def test_block_has_a_loss_whose_name_goes_on_after_an_underscore():
    lines = [
        line for n in (100, 200, 300) for line in (f"{n} iterations", f"recon_error: {4 - n / 100}", "perplexity: 37.0", "")
    ]
    training = read(lines).training
    assert (training.step, training.loss) == (300, 1.0)


def test_minutes_in_brackets_count_no_steps():
    training = read([f"Epoch={n}  train_loss={4 - n / 8:.3f}  dev_ppl=90.1\t[{n + 0.2:.2f}m]" for n in (1, 2, 3)]).training
    assert (training.step, training.epoch, training.loss) == (None, 3, 3.625)


@pytest.mark.parametrize("layout", ["loss={loss} mode={phase}", '"loss": {loss}, "split": "{phase}"', "loss {loss} [{phase}]"])
def test_phase_after_the_loss_separates_evaluation(layout: str):
    lines = [
        f"epoch={n} " + layout.format(loss=loss - n / 8, phase=p) for n in (1, 2, 3) for loss, p in ((2, "train"), (3, "val"))
    ]
    training = read(lines).training
    assert (training.epoch, training.loss, training.evaluation_loss) == (3, 1.625, 2.625)
