"""Lines of real programs: trainers, frameworks, scripts, and logs that hold no progress."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import Training
from tests.unit.joblog.test_general import read

DATA = Path(__file__).parents[2] / "data"
LOSSES = (2.9134, 2.5521, 2.3187, 2.1290, 1.9846, 1.9011)
Program = tuple[list[str], dict[str, object]]


def load(file: str) -> dict[str, Program]:
    """Return the lines and the expected values of each program."""
    programs: dict[str, Program] = {}
    for section in (DATA / file).read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, *lines = section.rstrip("\n").split("\n")
        name, _, values = heading.partition(" ")
        programs[name] = [line.replace("␍", "\r").replace("␛", "\x1b") for line in lines], json.loads(values or "{}")
    return programs


def repeat(rows: list[str]) -> list[str]:
    """Return the lines of a log of this layout."""
    once = [row[2:] for row in rows if row.startswith("! ")]
    layout = "\n".join(row.removeprefix("~ ") for row in rows if not row.startswith("! "))
    lines = []
    for i, loss in enumerate(LOSSES):
        step = (i + 1) * 10
        values = {"s": step, "S": step * 100, "l": loss, "v": loss + 0.5, "r": 100 + i * 7, "p": step // 2, "b": f"{step:>4}"}
        lines += layout.format(i=i, e=i + 1, **values).split("\n")
    return once + (["\r" + "\r".join(lines)] if rows[0].startswith("~ ") else lines)


LAYOUTS = {f"layout_{name}": (repeat(rows), values) for name, (rows, values) in load("program_layouts.txt").items()}
PROGRAMS = load("program_lines.txt") | LAYOUTS
POSITIVES = [name for name, (_, values) in PROGRAMS.items() if values]
NEGATIVES = [name for name, (_, values) in PROGRAMS.items() if not values]


def is_right(value: float | None, answer: object) -> bool:
    if answer == "any" or answer is None:
        return (value is None) == (answer is None)
    answers = answer if isinstance(answer, list) else [answer]
    return any(value == pytest.approx(item, rel=2e-6) for item in answers)


def wrong_values(training: Training, expected: dict[str, object]) -> dict[str, object]:
    return {name: getattr(training, name) for name, answer in expected.items() if not is_right(getattr(training, name), answer)}


@pytest.mark.parametrize("name", POSITIVES)
def test_lines_of_the_program_are_read(name: str):
    lines, expected = PROGRAMS[name]
    view = read(lines)
    assert wrong_values(view.training, expected) == {}
    assert isinstance(view.master, Master)
    assert view.master.evidence.kind == "progress line"


@pytest.mark.parametrize("name", NEGATIVES)
def test_lines_without_progress_are_not_taken(name: str):
    view = read(PROGRAMS[name][0])
    training = view.training
    assert (training.step, training.epoch, training.loss, training.speed, training.lr) == (None,) * 5
    assert not isinstance(view.master, Master) or view.master.evidence.kind != "progress line"
