"""Totals that the arguments of the command set, where the progress lines have none."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.cli.view_json import progress_json
from kfjob.cli.view_text import remaining_text
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.progress_text import step_text
from kfjob.joblog.view.reduction import reduce_all


def read(lines: list[str], *, steps: int | None = None, epochs: int | None = None) -> JobView:
    """Return the view of a running job after lines that come every 10 seconds."""
    events = [LogLine(pod="w-0", text=text, time=number * 10 * SECOND) for number, text in enumerate(lines)]
    job = JobChanged(phase=JobPhase.RUNNING, time=0)
    return reduce_all(JobView(config=ObserveConfig(expected_steps=steps, expected_epochs=epochs)), [job, *events])


def test_epochs_of_the_arguments_give_the_time_that_is_left():
    view = read([f"epoch {number} loss {3 - number / 10:.2f}" for number in range(1, 4)], epochs=10)
    assert (step_text(view), remaining_text(view)) == ("epoch 3/10", "1m10s left")
    assert progress_json(view)["epochs"] == 10


def test_epochs_from_0_count_the_epoch_of_the_line():
    view = read([f"epoch {number} loss {3 - number / 10:.2f}" for number in range(4)], epochs=10)
    assert remaining_text(view) == "1m00s left"


def test_fractions_of_epochs_are_done():
    line = "{{'loss': {:.2f}, 'learning_rate': 1e-05, 'epoch': {}}}"
    view = read([line.format(3 - number / 10, number / 2) for number in range(1, 4)], epochs=3)
    assert (step_text(view), remaining_text(view)) == ("epoch 1.5/3", "30s left")


def test_epochs_of_the_arguments_complete_steps_within_epochs():
    lines = [f"epoch {epoch} [{step}/10] loss {3 - epoch / 10 - step / 100:.2f}" for epoch in (1, 2) for step in range(1, 11)]
    view = read(lines, epochs=4)
    assert (step_text(view), remaining_text(view)) == ("epoch 2/4, step 10/10", "3m20s left")


def test_steps_of_the_arguments_are_those_of_the_run():
    lines = [f"step {step} loss {3 - step / 100:.2f}" for step in range(1, 11)]
    view = read(lines, steps=20)
    assert (step_text(view), remaining_text(view)) == ("step 10/20", "1m40s left")


def test_printed_total_takes_precedence():
    view = read([f"step {step}/15 loss {3 - step / 100:.2f}" for step in range(1, 11)], steps=20)
    assert (step_text(view), remaining_text(view)) == ("step 10/15", "50s left")


def test_total_that_the_run_has_passed_is_left_out():
    view = read([f"step {step} loss {3 - step / 100:.2f}" for step in range(1, 11)], steps=8)
    assert (step_text(view), remaining_text(view)) == ("step 10", "")
    view = read([f"epoch {number} loss {3 - number / 10:.2f}" for number in range(1, 7)], epochs=5)
    assert (step_text(view), remaining_text(view)) == ("epoch 6", "")
    view = read([f"step {step}/8 loss {3 - step / 100:.2f}" for step in range(1, 11)])
    assert (step_text(view), remaining_text(view)) == ("step 10", "")


def test_steps_within_an_epoch_are_not_those_of_the_arguments():
    lines = [f"epoch {epoch} step {step} loss {3 - epoch / 10 - step / 100:.2f}" for epoch in (1, 2) for step in range(1, 6)]
    assert step_text(read(lines, steps=100)) == "epoch 2, step 5"
