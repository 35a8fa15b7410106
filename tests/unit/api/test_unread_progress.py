"""`kfjob watch` reports lines that look like progress although none counts, with a pattern that reads them."""

from __future__ import annotations

import json
import re

import pytest

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobPhase
from kfjob.joblog.progress.exact_formats import custom_format
from tests.unit.api import script

LAYOUTS = {"loss": "[worker] <loss> {loss} after warming", "letters": "loss({loss}) of sample {name}"}


def play(layout: str, *, steps: str = "") -> tuple[list[str], list[Event]]:
    """Return the program's lines, and the events of a job that prints them."""
    names = "abcdefghijklmnopqrstuvwxyzabcdefghijklmn"
    texts = [steps.format(step) + layout.format(loss=9 - step / 100, name=name) for step, name in enumerate(names)]
    lines = [script.line(0, text, 10 + second) for second, text in enumerate(texts)]
    end = script.job(JobPhase.SUCCEEDED, started=script.START, ended=script.START + 90 * SECOND)
    return texts, [*script.STARTING, *lines, end]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_watch_reports_unread_lines_once_with_a_pattern_that_reads_them(fake, kfjob, layout: str):
    texts, events = play(layout)
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("watch", "train") == 0
    [notice] = [line for line in kfjob.err.splitlines() if "look like progress" in line]
    assert f"no progress is read; lines like `{texts[0]}` look like progress" in notice
    pattern = re.search(r"`progress: '(.*)'` in the spec reads only their loss$", notice)
    assert pattern is not None
    custom = custom_format(pattern[1])
    losses = [reading.loss for text in texts if (reading := custom(text))]
    assert losses == pytest.approx([9 - step / 100 for step in range(len(texts))])


def test_watch_as_json_has_the_notice_once(fake, kfjob):
    _, events = play(LAYOUTS["loss"])
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("watch", "train", "-o", "json") == 0
    values = [json.loads(line) for line in kfjob.out.splitlines()]
    assert ["no progress is read" in json.dumps(value) for value in values].count(True) == 1


def test_watch_reports_no_unread_lines_where_progress_is_read(fake, kfjob):
    _, events = play(LAYOUTS["loss"], steps="step {}: ")
    fake.play("train", *events, spec=script.SPEC)
    assert kfjob("watch", "train") == 0
    assert "progress is read from lines like `step 0: [worker] <loss> 9.0 after warming`" in kfjob.err
    assert "no progress is read" not in kfjob.err


SILENT = "[{step}] energy={loss}"
PATTERN = r"^\W*(?P<step>\d+).*?energy\W+?(?P<loss>[-+.\w]*\w)"


def play_silent() -> list[Event]:
    """Return the events of a job whose lines name nothing that kfjob knows."""
    lines = [script.line(0, SILENT.format(step=step, loss=9.5 - step / 8), 10 + step) for step in range(1, 40)]
    end = script.job(JobPhase.SUCCEEDED, started=script.START, ended=script.START + 90 * SECOND)
    return [*script.STARTING, *lines, end]


@pytest.mark.parametrize("command", ["watch", "status", "progress"])
def test_lines_without_a_known_name_get_a_pattern_once(fake, kfjob, command: str):
    fake.play("train", *play_silent(), spec=script.SPEC)
    assert kfjob(command, "train") == 0
    text = kfjob.out + kfjob.err
    assert text.count("progress: '") == 1
    advice = f"if lines like `[39] energy=4.625` are progress, `progress: '{PATTERN}'` in the spec reads them"
    assert f"none was read; {advice}" in text


def test_pattern_reads_the_lines_that_it_was_made_from(fake, kfjob):
    fake.play("train", *play_silent(), spec=script.SPEC)
    assert kfjob("progress", "train", "--progress", PATTERN) == 0
    assert "step 39 · loss 4.6250 (9.375 at first)" in kfjob.out
