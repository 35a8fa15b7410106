"""Progress of programs whose lines count epochs and no steps, or whose step is the same in each epoch."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.cli.display import Display
from kfjob.cli.view_text import progress_line
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from tests.unit.cli.test_panel import PODS, create_display, draw, feed, log_line
from tests.unit.joblog.test_general import read as read_log

EPOCHS = [f"Epoch[{epoch}] Complete. Time taken: 00:00:32.881" for epoch in range(1, 7)]
SAME_STEP = [f"Epoch [{epoch}/8], Step [12/12], Loss: {9 / epoch:.3f}" for epoch in range(1, 9)]


def read(lines: list[str]) -> JobView:
    running = JobChanged(phase=JobPhase.RUNNING, created=1)
    logs = [LogLine(pod=PODS[0], text=text, time=(number + 1) * SECOND) for number, text in enumerate(lines)]
    return reduce_all(JobView(), [running, *logs])


def test_progress_of_epochs_is_shown_without_step_and_loss():
    view = read(EPOCHS)
    assert progress_line(view) == "epoch 6"
    assert any(line.split() == ["progress", "epoch", "6"] for line in draw(view, 80))


@pytest.mark.parametrize("lines", [EPOCHS, SAME_STEP])
def test_follow_prints_each_new_epoch(lines: list[str], capsys: pytest.CaptureFixture[str]):
    display = create_display(Display)
    texts = [text for line in lines for text in (line, *["data is shuffled"] * 5)]  # display time passes with each
    feed(display, [log_line(text, 10 * number) for number, text in enumerate(texts)])
    printed = [line.split("  ", 2)[2] for line in capsys.readouterr().err.splitlines() if "  epoch " in line]
    assert [text.split()[1].partition("/")[0].rstrip(",") for text in printed[-3:]] == [str(len(lines) - n) for n in (2, 1, 0)]


BLOCKS = [
    line
    for epoch in (3, 6, 9, 12)
    for name, loss in (("Train", 4 / epoch), ("Test", 9 / epoch))
    for line in (
        f"Epoch[{epoch}] - Evaluation time: 9.3",
        f" - {name} metrics:",
        " \tAccuracy: 0.1",
        f"\tLoss: {loss}",
    )
]


def test_loss_below_the_heading_of_an_evaluation_is_no_training_loss():
    training = read_log(BLOCKS).training
    assert [point.loss for point in training.curve] == [4 / epoch for epoch in (3, 6, 9, 12)]
    assert training.evaluation_loss == 9 / 12
