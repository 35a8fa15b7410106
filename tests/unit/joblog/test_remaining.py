"""The time that remains: of the run or of the epoch, as the program prints it, or else by the steps."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.cli.view_text import remaining_text
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.progress.printed_times import find_remaining
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all


@pytest.mark.parametrize(
    ("line", "seconds", "of_bar"),
    [
        ("loss: 0.3226:   4%|4 | 13/300 [00:21<06:42,  1.40s/it]", 402, True),
        (" 4%|4 | 13/300 [1:00:21<1 day, 2:00:00,  1.40s/it]", 93600, True),
        ("Epoch(train) [1][20/20]  lr: 1.0e-03  eta: 0:00:17  time: 0.85", 17, False),
        ("eta: 1 day, 2:03:04  iter: 19  total_loss: 2.3", 93784, False),
        ("20/100 [===>...] - ETA: 12s - loss: 2.3", 12, False),
        ("step 10 | loss 2.3 | eta 1h 2m 3s", 3723, False),
        ("step 10 | loss 2.3 | eta=2.5 min", 150, False),
        ('{"step": 10, "loss": 2.3, "time_left": "00:01:05"}', 65, False),
        ("step 10 loss 2.3 remaining time: 01:05", 65, False),
        ("step 10 loss 2.3 | 3.5h left", None, False),
    ],
)
def test_printed_time_that_remains_is_read(line: str, seconds: float | None, of_bar: object):
    assert find_remaining(line) == (seconds, of_bar)


@pytest.mark.parametrize(
    "line",
    [
        "xgboost eta: 0.3 loss 2.3",
        "step 10 loss 2.3 beta: 12s",
        "remaining: 3 steps, loss 2.3",
        "  0%|  | 0/300 [00:02<?, ?it/s]",
        "metadata: 10:20:30",
        "eta: 2026-11-23 10:20:30 loss 2.3",
        "theta: 1:02",
        "loss < 2:10",
    ],
)
def test_other_numbers_are_no_time_that_remains(line: str):
    assert find_remaining(line) == (None, False)


def read(lines: list[tuple[float, str]]) -> JobView:
    """Return the view of a running job after lines with their times in seconds."""
    events = [LogLine(pod="w-0", text=text, time=int((1000 + time) * SECOND)) for time, text in lines]
    return reduce_all(JobView(), [JobChanged(phase=JobPhase.RUNNING), *events])


def draw_twice(steps: int, remaining: str = "?") -> list[tuple[float, str]]:
    """Return a bar with a new description, and then one step more, every 2 s, as `set_description` and `update` print it."""
    return [
        (
            2 * step + 0.01 * done,
            f"loss: {3 - step / 100:.4f}:   1%|1 | {step + done}/300 [00:{2 * step:02}<{remaining}, 2.00s/it]",
        )
        for step in range(steps)
        for done in (0, 1)
    ]


def test_bar_that_is_drawn_twice_at_each_step_does_not_shorten_the_time_that_remains():
    texts = [remaining_text(read(draw_twice(count))) for count in (10, 20)]
    assert texts == ["~9m40s left to step 300", "~9m20s left to step 300"]


def test_time_that_the_bar_prints_wins_over_an_estimate():
    assert remaining_text(read(draw_twice(10, "06:42"))) == "~6m42s left to step 300"


def epochs_with_eta(epochs: int, eta: str, *, head: str = "[{epoch}][{step}/20]") -> list[tuple[float, str]]:
    """Return lines every 10 steps of 1 s; `eta` is `run`, for that of the whole run, or `epoch`."""
    lines: list[tuple[float, str]] = []
    for epoch in range(1, epochs + 1):
        for step in (10, 20):
            done = 20 * (epoch - 1) + step
            rest = 20 * 50 - done if eta == "run" else 20 - step
            place = head.format(epoch=epoch, step=step)
            lines.append(
                (done, f"Epoch(train) {place}  lr: 1e-3  eta: 0:{rest // 60:02}:{rest % 60:02}  loss: {9 - done / 100:.4f}")
            )
    return lines


def test_printed_time_of_the_run_is_used_where_the_number_of_epochs_is_unknown():
    lines = epochs_with_eta(2, "run")
    assert remaining_text(read(lines[:2])) == "16m20s left"
    assert remaining_text(read(lines)) == "16m00s left"


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_printed_time_of_the_epoch_is_never_that_of_the_run(count: int):
    view = read(epochs_with_eta(3, "epoch")[:count])
    assert remaining_text(view) == f"~{0 if count % 2 == 0 else 10}s left in this epoch"


def test_printed_time_of_the_epoch_does_not_replace_that_of_the_run_where_the_epochs_are_known():
    lines = epochs_with_eta(1, "epoch", head="[{epoch}/50][{step}/20]")
    assert remaining_text(read(lines[:2])) == "16m20s left"


def test_first_epoch_without_a_known_number_of_epochs_says_that_the_time_is_of_the_epoch():
    lines = [
        (0.0, "Epoch: 0"),
        *((4.0 * step, f"Step: 4s | Tot: {step}s | Loss: {3 - step / 10} {step}/20") for step in range(1, 5)),
    ]
    view = read(lines)
    assert remaining_text(view) == "~1m04s left in this epoch"
    assert view.eta is None


def test_step_that_goes_on_in_the_next_epoch_is_one_of_the_run():
    lines = [(float(step), f"epoch {step // 40} step {step}/100 loss {3 - step / 100:.4f}") for step in range(0, 60, 10)]
    assert remaining_text(read(lines)) == "50s left"


def test_epochs_that_end_before_their_printed_total_have_the_steps_that_were_seen():
    lines: list[tuple[float, str]] = []
    for epoch in range(1, 4):
        lines += [(40.0 * epoch - 1, f"epoch {epoch}/5")]
        lines += [(40.0 * epoch + 2 * step, f"{step}/20, train_loss: {5 - epoch - step / 100:.4f}") for step in range(1, 11)]
    seconds = [read(lines[: 22 + step]).eta for step in range(2, 10)]
    assert seconds == sorted([second for second in seconds if second is not None], reverse=True)
    assert remaining_text(read(lines[:24])) == "1m56s left"  # 29 steps, 4 s each with the evaluation after every epoch
