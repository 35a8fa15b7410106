"""Learning rates compared with their formulas, and the state of `ReduceOnPlateau`."""

from __future__ import annotations

import math

import pytest

from kfjob.trainer.optim import ReduceOnPlateau, compute_learning_rate
from kfjob.trainspec.train_spec import TrainSpec

STEPS = 101


def rates(**changes):
    spec = TrainSpec(model="micro-llama", data="-", max_steps=STEPS, sequence_length=8, lr=1.0, min_lr=0.01, **changes)
    return [compute_learning_rate(step, STEPS, spec) for step in range(STEPS)]


def test_exponential_schedule_has_a_constant_factor():
    schedule_rates = rates(schedule="exponential")
    assert schedule_rates == pytest.approx([0.01 ** (step / 100) for step in range(STEPS)])


def test_wsd_schedule_is_constant_then_linear():
    schedule_rates = rates(schedule="wsd", warmup_steps=10, decay_fraction=0.2)
    assert schedule_rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert set(schedule_rates[10:81]) == {1.0}
    assert schedule_rates[80:] == pytest.approx([1 - 0.99 * step / 20 for step in range(21)])
    long_decay = rates(schedule="wsd", warmup_steps=90, decay_fraction=0.5)  # it begins after the warm-up
    assert long_decay[90:] == pytest.approx([1 - 0.99 * step / 10 for step in range(11)])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "exponential", "wsd"])
def test_schedule_ends_at_lr_decay_iters(schedule):
    schedule_rates = rates(schedule=schedule, lr_decay_iters=51)
    assert schedule_rates[49] > 0.01
    assert schedule_rates[50:] == pytest.approx([0.01] * 51)


def test_warmup_fraction_equals_warmup_steps():
    assert rates(schedule="cosine", warmup_fraction=0.1)[:10] == rates(schedule="cosine", warmup_steps=10)[:10]
    after = rates(schedule="cosine", warmup_fraction=0.1)[10:]
    assert after == pytest.approx([0.01 + 0.99 * (1 + math.cos(math.pi * step / 90)) / 2 for step in range(91)])


def test_plateau_lowers_the_rate_and_restores_its_state():
    plateau = ReduceOnPlateau(patience=1, reduction=0.5)
    for loss in (4.0, 3.0, 3.0):
        plateau.step(loss)
    assert plateau.factor == 1.0
    restored = ReduceOnPlateau(patience=1, reduction=0.5)
    restored.load_state_dict(plateau.state_dict())
    for schedule in (plateau, restored):
        schedule.step(2.99999)  # lower by less than 0.01 %
        assert (schedule.factor, schedule.bad_evaluations) == (0.5, 0)
        schedule.step(2.0)
        assert (schedule.factor, schedule.best) == (0.5, 2.0)
    restored.load_state_dict(ReduceOnPlateau(patience=1, reduction=0.5).state_dict())  # a roll-back to before the evaluations
    assert (restored.factor, restored.best, restored.bad_evaluations) == (1.0, math.inf, 0)
    spec = TrainSpec(model="micro-llama", data="-", max_steps=9, sequence_length=8, lr=1.0, schedule="plateau", eval_every=1)
    assert compute_learning_rate(5, 9, spec, factor=0.5) == 0.5
    assert compute_learning_rate(5, 9, spec, factor=0.01) == 0.1
