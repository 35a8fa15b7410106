"""Learning rates against their closed forms, and what a plateau remembers."""

from __future__ import annotations

import math

import pytest

from kfjob.errors import SpecError
from kfjob.spec.train import TrainSpec
from kfjob.trainer.optim import Plateau, learning_rate

STEPS = 101


def rates(**changes):
    spec = TrainSpec(model="micro-llama", data="-", max_steps=STEPS, sequence_length=8, lr=1.0, min_lr=0.01, **changes)
    return [learning_rate(step, STEPS, spec) for step in range(STEPS)]


def test_exponential_falls_by_the_same_factor_every_step():
    got = rates(schedule="exponential")
    assert got == pytest.approx([0.01 ** (step / 100) for step in range(STEPS)])


def test_wsd_is_constant_and_then_linear():
    got = rates(schedule="wsd", warmup_steps=10, decay_fraction=0.2)
    assert got[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert set(got[10:81]) == {1.0}
    assert got[80:] == pytest.approx([1 - 0.99 * step / 20 for step in range(21)])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "exponential", "wsd"])
def test_lr_decay_iters_is_where_the_last_rate_is_reached(schedule):
    got = rates(schedule=schedule, lr_decay_iters=51)
    assert got[49] > 0.01
    assert got[50:] == pytest.approx([0.01] * 51)


def test_warmup_as_a_fraction():
    assert rates(schedule="cosine", warmup_fraction=0.1)[:10] == rates(schedule="cosine", warmup_steps=10)[:10]
    after = rates(schedule="cosine", warmup_fraction=0.1)[10:]
    assert after == pytest.approx([0.01 + 0.99 * (1 + math.cos(math.pi * step / 90)) / 2 for step in range(91)])


def test_a_plateau_lowers_the_rate_and_is_remembered():
    plateau = Plateau(patience=1, by=0.5)
    for loss in (4.0, 3.0, 3.0):
        plateau.heard(loss)
    assert plateau.factor == 1.0
    again = Plateau(patience=1, by=0.5)
    again.restore(plateau.state())
    for one in (plateau, again):
        one.heard(2.99999)  # lower by less than a part in ten thousand
        assert (one.factor, one.borne) == (0.5, 0)
        one.heard(2.0)
        assert (one.factor, one.best) == (0.5, 2.0)
    spec = TrainSpec(model="micro-llama", data="-", max_steps=9, sequence_length=8, lr=1.0, schedule="plateau", eval_every=1)
    assert learning_rate(5, 9, spec, factor=0.5) == 0.5
    assert learning_rate(5, 9, spec, factor=0.01) == 0.1


@pytest.mark.parametrize(
    ("change", "message"), [({"schedule": "plateau"}, "eval_every"), ({"schedule": "exponential", "min_lr": 0}, "min_lr")]
)
def test_schedules_that_cannot_be(change, message):
    with pytest.raises(SpecError, match=message):
        TrainSpec(model="micro-llama", data="-", max_steps=9, sequence_length=8, **change)
