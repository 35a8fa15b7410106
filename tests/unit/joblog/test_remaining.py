"""The time that remains: of the run or of the epoch, by the steps."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.cli.view_text import remaining_text
from kfjob.joblog.events import JobChanged, JobPhase, LogLine
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all


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
