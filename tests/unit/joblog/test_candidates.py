"""A new row of `FORMATS` is read without a change elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.progress import formats as progress
from kfjob.joblog.progress.formats import FORMATS, ProgressFormat, progress_reader
from kfjob.joblog.progress.general.candidates import may_hold_progress
from kfjob.joblog.progress.general.log_reader import read_progress
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.reading import Reading
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

NOISE = (
    "a:312:1 [0] NCCL INFO Channel 03/0 : 1[1] -> 7[7] via P2P/CUMEM",
    "finished step in 3 ms",
    "the moss grew",
    "ZY 3",
    "",
)
ROWS = {
    "a marker of its own": ("ZZ", "", "ZZ 5 of 9"),
    "a literal of its own": ("Z", "ZZtop", "ZZtop 5 of 9"),
    "a marker that formats share": ("oss", "", "the moss is 5 of 9"),
    "a literal that the general reader knows": ("step", " for request", "finished step for request 5 of 9"),
    "a literal in two colours": ("step", "step for request", "finished \x1b[1mstep\x1b[0m for request 5 of 9"),
    "a marker in part of a general one": ("wossZ", "", "a glossy wossZ 5 of 9"),
    "a marker with other letters": ("¶ück", "", "¶ück 5 of 9"),
    "a literal alone": ("", "ZZ", "ZZ 5 of 9"),
    "no literal": ("", "", "Q5 of 9"),
}
STEP = re.compile(r"(\d+) of 9$")


def read_step(text: str) -> Reading | None:
    match = STEP.search(text)
    return Reading(format="invented", step=int(match[1])) if match else None


@pytest.fixture(params=ROWS)
def line(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Add an invented row, and return a line of its trainer."""
    marker, literal, text = ROWS[request.param]
    row = ProgressFormat("invented", marker, read_step, literal)
    monkeypatch.setattr(progress, "FORMATS", (*FORMATS, row))
    progress_reader.cache_clear()
    yield text
    progress_reader.cache_clear()


def test_general_reader_ignores_the_layout(line: str):
    assert not may_hold_progress(line.encode())


@pytest.mark.parametrize("trainer", ["", "invented"])
def test_points_of_a_new_row_are_seen(line: str, trainer: str):
    lines = [text for step in (5, 6, 7) for text in (*NOISE, line.replace("5", str(step)))]
    config = ObserveConfig(trainer=trainer)
    block = "".join(f"{text}\n" for text in lines).encode()
    printed = [block[start:end].decode() for start, end in Prefilter(config).select(block)]
    assert [text for text in printed if " of 9" in text] == [text for text in lines if " of 9" in text]
    view = reduce_all(JobView(config=config), [LogLine(pod="w-0", text=text) for text in printed])
    assert view.training.step == 7


def test_each_line_of_a_new_row_is_one_point(line: str):
    _, emissions = read_progress(line, 0, None, progress_reader(), ReaderState())
    assert [(item.reading.format, item.reading.step) for item in emissions] == [("invented", 5)]
