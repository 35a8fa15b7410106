"""The loss curve: of bounded length, in the order of steps, and what is said of a loss and of a restart."""

from __future__ import annotations

import pytest

from kfjob.joblog.events import Event
from kfjob.joblog.progress.curve import MAX_POINTS
from kfjob.joblog.progress.reading import Reading
from kfjob.joblog.progress.training import Training, format_loss
from kfjob.joblog.progress.training_transitions import add_reading
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from tests.unit.api import script


def test_late_points_are_kept_in_order_and_bounded():
    training = add_reading(Training(), Reading(format="x", step=5000, loss=1.0), pod="w-0", time=None)
    for step in range(2000):
        training = add_reading(training, Reading(format="x", step=step, loss=2.0, late=True), pod="w-0", time=None)
    steps = [point.step for point in training.curve]
    assert MAX_POINTS // 4 < len(steps) <= MAX_POINTS
    assert steps == sorted(steps)
    assert training.lines == 2001
    assert training.first_loss == 1.0


def news_of(*events: Event) -> list[str]:
    return [news.text for news in reduce_all(JobView(), (*script.STARTING, *events)).news if news.kind == "progress"]


def attempt(second: int, steps: range) -> list[Event]:
    lines = [script.line(0, f"step {step} loss {3 - step / 10}", second + 1 + step) for step in steps]
    return [*script.block(0, 0, second), *script.block(1, 1, second), *lines]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (range(12), "goes on at step 0: it has not resumed from a checkpoint"),
        (range(6, 12), "goes on at step 6"),
        (range(9, 12), None),
    ],
)
def test_a_restart_that_loses_steps_is_news(steps, expected):
    news = news_of(*attempt(5, range(9)), *attempt(40, steps))
    assert news[1:] == ([f"the program was restarted after step 8 and {expected}"] if expected else [])


def test_a_program_that_resumes_in_a_later_epoch_keeps_its_curve():
    def run(second: int, *epochs: int) -> list[Event]:
        texts = [f"epoch {epoch} step {step} loss {9 - epoch}" for epoch in epochs for step in (10, 20, 30)]
        lines = [script.line(0, text, second + 1 + number) for number, text in enumerate(texts)]
        return [*script.block(0, 0, second), *script.block(1, 1, second), *lines]

    training = reduce_all(JobView(), (*script.STARTING, *run(5, 1, 2), *run(40, 3))).training
    assert [point.step for point in training.curve] == [10, 20, 30, 40, 50, 60, 70, 80, 90]


LOSSES = [3 - step / 10 for step in range(9)]


def trainer_attempt(second: int, steps: range) -> list[Event]:
    """Return the lines of transformers' Trainer in one round: its bar begins at 0, also where it resumes."""
    states = [f"\r {100 * step // 8}%|█ | {step}/8 [00:01<00:01, 2.00it/s]" for step in range(9)]
    ends = [f"{states[step]}\r   \r{{'loss': '{LOSSES[step]}', 'epoch': '{step / 8}'}}" for step in steps]
    last = [states[steps[-1]]] if steps else []
    texts = ["\r  0%|  | 0/8 [00:00<?, ?it/s]", *ends, "{'train_runtime': '0.2', 'train_loss': '0'}", *last]
    lines = [script.line(0, text, second + 1 + number) for number, text in enumerate(texts)]
    return [*script.block(0, 0, second), *script.block(1, 1, second), *lines]


@pytest.mark.parametrize(
    ("rounds", "step", "points", "news"),
    [
        ([range(1, 9), range(0)], 8, range(1, 9), []),  # it resumed from its last checkpoint
        ([range(1, 6), range(6, 9)], 8, range(1, 9), []),
        ([range(1, 6), range(4, 9)], 8, range(1, 9), ["step 5 and goes on at step 4"]),
        ([range(1, 6), range(1, 4)], 3, range(1, 4), ["step 5 and goes on at step 1: it has not resumed from a checkpoint"]),
        ([range(1, 9), range(1, 4)], 3, range(1, 4), ["step 8 and goes on at step 1: it has not resumed from a checkpoint"]),
        ([range(1, 6), range(0), range(6, 9), range(0)], 8, range(1, 9), []),
    ],
)
def test_an_empty_bar_is_no_step_of_a_restarted_program(rounds, step, points, news):
    events = [event for number, steps in enumerate(rounds) for event in trainer_attempt(20 * number, steps)]
    training = reduce_all(JobView(), (*script.STARTING, *events)).training
    assert (training.run_step, training.step, training.loss) == (step, step, LOSSES[step])
    assert {point.step for point in training.curve} == {*points}
    assert [text for text in news_of(*events) if "restarted" in text] == [
        f"the program was restarted after {text}" for text in news
    ]


def test_a_new_epoch_is_no_restart():
    assert len(news_of(*attempt(5, range(9)), *attempt(40, range(9))[-9:])) == 1


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (2.30258, "2.3026"),
        (0.0, "0"),
        (5.1234e-10, "5.123e-10"),
        (1e-05, "1e-05"),
        (0.0012345, "0.001234"),
        (-4e-5, "-4e-05"),
        (2.5e7, "2.5e+07"),
    ],
)
def test_a_tiny_loss_is_not_shown_as_zero(loss, text):
    assert format_loss(loss) == text
