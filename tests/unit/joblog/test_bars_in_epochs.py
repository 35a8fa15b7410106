"""Progress bars that a program draws again in each epoch: steps of the run, epochs, and the time that remains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kfjob.base.units import SECOND
from kfjob.cli.view_text import remaining_text
from kfjob.joblog.events import JobChanged, JobPhase, LogLine, OpenLine, Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

STEPS = 60
UP = "\x1b[A"


def draw(step: int, total: int = STEPS, *, head: str = "", values: str = "", rate: str = "20.00it/s") -> str:
    rate = rate if step else "?it/s"
    return f"{head}{100 * step // total:3}%|█    | {step}/{total} [00:01<?, {rate}{values}]"


def run_epoch(number: int, head: str = "", *, last: int = STEPS) -> Iterator[str]:
    """Yield the states of the bar of one epoch, with a loss that falls."""
    yield draw(0, head=head)
    for step in range(1, last + 1):
        yield draw(step, head=head, values=f", loss={3 - 0.01 * (STEPS * number + step):.4f}")


def read(lines: list[str], *, spacing: int | None = None) -> JobView:
    """Return the view after the lines of a running job, with this time between two lines, or without times."""
    times = [None if spacing is None else (100 + number) * spacing for number in range(len(lines))]
    events = [LogLine(pod="w-0", text=text, time=time) for text, time in zip(lines, times, strict=True)]
    return reduce_all(JobView(), [JobChanged(phase=JobPhase.RUNNING), *events])


LAYOUTS = {
    "the description counts epochs": lambda number: ["\r".join(run_epoch(number, f"Epoch {number + 1}/2: "))],
    "a line before the bar counts epochs": lambda number: [f"Epoch {number + 1}/2", "\r".join(run_epoch(number))],
    "a bar of epochs stands above": lambda number: [
        f"\r{draw(number, 2, head='Epochs: ')}",
        *(f"\r{state}{UP}" for state in run_epoch(number)),
        *([f"\r{draw(2, 2, head='Epochs: ')}"] if number else []),
    ],
    "a bar named after the epoch stands above": lambda number: [
        f"\r{draw(number, 2, head='Epoch: ')}",
        *(f"\r{state}{UP}" for state in run_epoch(number, "Iteration: ")),
        *([f"\r{draw(2, 2, head='Epoch: ')}"] if number else []),
    ],
    "nothing counts epochs": lambda number: ["\r".join(run_epoch(number))],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bars_of_two_epochs_count_all_steps_once(layout: str):
    training = read([line for number in range(2) for line in LAYOUTS[layout](number)]).training
    assert (training.steps, training.run_step, training.step, training.total) == (120, 120, 60, 60)
    assert training.loss == pytest.approx(1.8)
    assert [point.step for point in training.curve][-1] == 120
    if layout != "nothing counts epochs":
        assert (training.epoch, training.epochs) == (2, 2)


def test_steps_that_count_from_zero_are_one_more_than_the_last():
    lines = [f"Epoch [{epoch}/2], Step [{step}/60], loss {3 - 0.01 * step}" for epoch in (1, 2) for step in range(60)]
    assert read(lines).training.steps == 120


def test_a_count_that_reaches_its_total_is_the_number_of_steps():
    lines = [f"step {step}/60 loss {3 - 0.01 * step}" for step in range(61)]
    assert read(lines).training.steps == 60


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        ("the description counts epochs", "4s left"),
        ("a line before the bar counts epochs", "4s left"),
        ("a bar of epochs stands above", "4s left"),
        ("nothing counts epochs", "~1s left to step 60"),
    ],
)
def test_time_that_remains_follows_from_the_speed_of_a_bar_without_times(layout: str, text: str):
    *lines, last = LAYOUTS[layout](0)
    states = [*lines, last] if UP in last else [*lines, "\r".join(last.split("\r")[:41])]
    states = [state for state in states if " 41/" not in state and not any(f" {step}/60" in state for step in range(42, 61))]
    assert remaining_text(read(states)) == text


def test_time_that_remains_is_that_of_the_epoch_where_their_number_is_unknown():
    states = [*run_epoch(0, "Epoch 1: "), *run_epoch(1, "Epoch 2: ", last=40)]
    view = read(states, spacing=SECOND)
    assert view.eta is None
    assert remaining_text(view) == "~20s left in this epoch"
    later = reduce_all(view, [Tick(time=(view.now or 0) + SECOND)])
    assert remaining_text(later) == "~19s left in this epoch"


def test_times_of_the_states_of_an_open_line_give_the_time_that_remains():
    states = list(run_epoch(0, "Epoch 1/2: ", last=40))
    events = [OpenLine(pod="w-0", text=text, time=(100 + number) * SECOND) for number, text in enumerate(states)]
    view = reduce_all(JobView(), [JobChanged(phase=JobPhase.RUNNING), *events])
    assert remaining_text(view) == "1m20s left"


def test_evaluation_below_the_bar_of_training_is_no_step():
    lines = [*run_epoch(0, last=20), f"\r{draw(3, 5, values=', loss=9.0')}{UP}", *list(run_epoch(0))[21:]]
    training = read([f"\r{line}" for line in lines]).training
    assert (training.steps, training.total) == (60, 60)
    assert max(point.loss for point in training.curve) < 3


@pytest.mark.parametrize("number", ["1e999", "9" * 400, "1e308"])
@pytest.mark.parametrize(
    "layout",
    [
        "Epoch 1/{}:  50%|#####     | 30/60 [00:10<00:10,  3.0it/s, loss=2.1]",
        " 50%|#####     | {}/60 [00:10<00:10,  3.0it/s, loss=2.1]",
        " 50%|#####     | 30/{} [00:10<00:10,  3.0it/s, loss=2.1]",
        "Epoch [1/{}], Step [10/60], Loss: 2.1",
        "step 10/{} loss 2.1",
    ],
)
def test_a_number_without_end_is_no_count(layout, number):
    lines = [LogLine(pod="w-0", text=layout.format(number).replace("2.1", f"2.{index}")) for index in range(4)]
    training = reduce_all(JobView(), lines).training
    assert all(value is None or value < 10**18 for value in (training.step, training.total, training.epochs))
