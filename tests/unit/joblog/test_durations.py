"""The speed that follows from a duration in a line, where the line prints no speed."""

from __future__ import annotations

import pytest

from kfjob.base.units import SECOND
from kfjob.cli.view_text import speed_text
from kfjob.joblog.events import LogLine
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

TIMES = (1.25, 0.52, 0.55, 0.51, 0.53, 0.5, 0.54, 0.5)
"""Seconds of the steps of a program; the first one compiles."""


def read(lines: list[str], *, every: float = 0.0) -> Training:
    """Return the training after the lines; they come `every` seconds, 0 for lines without times."""
    times = [round(number * every * SECOND) if every else None for number in range(len(lines))]
    events = [LogLine(pod="w-0", text=text, time=time) for text, time in zip(lines, times, strict=True)]
    return reduce_all(JobView(), events).training


def print_lines(layout: str, values: tuple[float, ...] = TIMES, *, interval: int = 1) -> list[str]:
    return [
        layout.format(n=number * interval, loss=3 - number / 10, s=value, ms=value * 1000)
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    "layout",
    [
        "step {n} | loss {loss:.3f} | dt {ms:.2f}ms",
        "step {n}, loss: {loss:.3f}, dt: {s:.3f}s",
        "step {n:5d} | loss: {loss:.6f} | lr 6.0000e-04 | norm: 1.2 | dt: {ms:.2f}ms",
        "step {n} loss {loss:.3f} time {s:.2f}s",
        "iteration {n}, loss: {loss}, time: {ms:.3f}ms",
        "step {n}, loss={loss:.3f}, time (ms): {ms:.1f}",
        "Step {n} took {s}s, loss {loss:.3f}",
        "step {n} loss {loss:.3f} duration {s} sec",
        "step {n} loss {loss:.3f} {s} s/it",
        "iteration {n}/ 100 | iter time (ms): {ms:.1f} | loss: {loss:.3f}",
        "iter {n}: loss {loss:.4f}, time {ms:.2f}ms, mfu 12.30%",
        (
            " iteration {n}/ 100 | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.0E-05 |"
            " lm loss: {loss:.6E} | grad norm: 1.0 |"
        ),
    ],
)
def test_duration_of_a_step_gives_a_speed(layout: str):
    training = read(print_lines(layout))
    assert training.speed == pytest.approx(1 / TIMES[-1])
    assert training.unit == "it/s"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("time", [10 + 3 * number for number in range(8)]),
        ("elapsed", [*TIMES]),
        ("total time", [*TIMES]),
        ("data time", [*TIMES]),
        ("time", [80 - 3 * number for number in range(8)]),
        ("time", [*range(1, 9), *range(1, 9)]),
    ],
    ids=["since the start", "elapsed", "of all steps", "of the data", "that remains", "since the start of an epoch"],
)
def test_duration_with_another_meaning_gives_none(name: str, values: list[float]):
    assert read(print_lines(f"step {{n}} loss {{loss:.3f}} {name} {{s:.2f}}s", tuple(values))).speed is None


@pytest.mark.parametrize("name", ["time", "dt"])
def test_duration_between_lines_of_several_steps_gives_none(name: str):
    assert read(print_lines(f"step {{n}} loss {{loss:.3f}} {name} {{s:.2f}}s", interval=10)).speed is None


def test_duration_of_an_epoch_gives_no_speed():
    assert read(print_lines("Epoch {n}/10 loss {loss:.3f} time {s:.2f}s")).speed is None


def test_printed_speed_takes_precedence():
    training = read(print_lines("step {n} | loss {loss:.3f} | dt {ms:.2f}ms | tok/sec: 237000.5"))
    assert (training.speed, training.unit) == (237000.5, "tokens/s")


def test_times_of_the_lines_give_the_speed_that_no_line_prints():
    lines = print_lines("step {n} loss {loss:.3f}", interval=10)
    assert speed_text(read(lines, every=5.0)) == "2 steps/s"
    assert speed_text(read(lines)) == ""


def test_printed_speed_is_shown_and_not_that_of_the_times():
    lines = print_lines("step {n} loss {loss:.3f} 35.1 samples/s")
    assert speed_text(read(lines, every=5.0)) == "35.1 samples/s"
