"""Recorded output of real trainers (tests/data/progress; its README has the versions), read line by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

ROOT = Path(__file__).parents[2] / "data" / "progress"


def lines(name: str) -> list[LogLine]:
    texts = (ROOT / f"{name}.log").read_bytes().decode().split("\n")
    return [LogLine(pod="w-0", text=text, time=second * 10**9) for second, text in enumerate(texts)]


def read(name: str) -> list[Training]:
    """Return the state after each line."""
    view, states = JobView(), []
    for line in lines(name):
        view = reduce_all(view, [line])
        states.append(view.training)
    return states


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "hugging-face",
            {"step": 20, "total": 20, "loss": 4.29, "first_loss": 4.294, "lr": 5e-05, "epoch": 1.0},
        ),
        ("accelerate", {"format": "tqdm", "step": 20, "total": 20, "loss": None, "speed": 59.72, "unit": "it/s"}),
        (
            "lightning",
            {"step": 10, "total": 10, "epoch": 1.0, "loss": 0.489, "speed": 533.97, "unit": "it/s"},
        ),
        ("lightning-rich", {"step": 10, "total": 10, "epoch": 1.0, "loss": 0.489, "speed": 271.85}),
        ("deepspeed", {"step": 20, "lr": 0.001, "speed": 558.2918249336024, "unit": "samples/s"}),
    ],
)
def test_recorded_run_ends_with_this_state(name: str, expected: dict[str, object]):
    training = read(name)[-1]
    assert {key: getattr(training, key) for key in expected} == expected


def test_evaluation_losses_are_not_training_losses():
    losses = list(dict.fromkeys(training.loss for training in read("hugging-face") if training.loss is not None))
    assert losses == [4.294, 4.291, 4.293, 4.29]


def test_evaluation_bar_is_no_training_progress():
    assert {training.total for training in read("hugging-face")} == {None, 20}
    steps = [training.step for training in read("hugging-face") if training.step is not None]
    assert steps == sorted(steps)
