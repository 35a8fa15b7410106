"""The first test of lines: it drops lines without figures by their layout, and keeps each line that a curve needs."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from kfjob.joblog.events import LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.progress.figures import line_figures
from kfjob.joblog.progress.figures.line_figures import Figures, parse_message
from kfjob.joblog.progress.general.candidates import make_skeleton, may_hold_progress
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

SHAPES = (
    "step {s} loss {v}",
    "Epoch [1/5], Step [{s}/600], Loss: {v}",
    "[1][{s}/7330] loss: {v} (2.40)",
    '{{"step": {s}, "train": {{"loss": {v}}}}}',
    "2026-02-03 04:05:06,211 INFO trainer: iter {s} | avg loss {v} | 101.5 samples/s",
    "| step | {s} |\n| loss | {v} |",
    "[step={s}/1000]\n    train/loss={v}",
    "epoch  train_loss  valid_loss\n{s}  {v}  2.5",
    "Iteration {s}\n  loss: {v}",
)
NOISE = (
    "INFO worker {n} finished step for request {h} in {v} ms",
    "DEBUG epoch manager: lease {h} renewed after {n} tries",
    "ptxas info : Compiling entry function '_Z{n}loss_kernel'",
    "Processing shard step {n} of tokenizer {h}",
)


def identifier(number: int) -> str:
    return sha256(f"{number}".encode()).hexdigest()[:20]


@pytest.mark.parametrize("shape", SHAPES)
def test_no_point_is_lost_after_much_noise(shape: str):
    text = ""
    for step in range(200):
        for number, template in enumerate(NOISE * 3):
            text += template.format(n=step * 37 + number, h=identifier(step), v=f"{step / 7:.3f}") + "\n"
        text += shape.format(s=step + 1, v=f"{9 - step / 40:.4f}") + "\n"
    block = text.encode()
    lines = [block[start:end].decode() for start, end in Prefilter(ObserveConfig()).select(block)]
    filtered = reduce_all(JobView(), [LogLine(pod="w-0", text=line) for line in lines])
    alone = "".join(shape.format(s=step + 1, v=f"{9 - step / 40:.4f}") + "\n" for step in range(200))
    complete = reduce_all(JobView(), [LogLine(pod="w-0", text=line) for line in alone.splitlines()])
    assert [(point.step, point.loss) for point in filtered.training.curve] == [
        (point.step, point.loss) for point in complete.training.curve
    ]
    assert filtered.training.lines >= 199


def test_lines_of_one_layout_are_parsed_once(monkeypatch: pytest.MonkeyPatch):
    parsed: list[str] = []

    def count(text: str, **options: Any) -> Figures:
        parsed.append(text)
        return parse_message(text, **options)

    monkeypatch.setattr(line_figures, "parse_message", count)
    template = "2026-11-22T08:00:{n:02d}.{n}Z INFO quiet worker {n} finished step for request {h} in {v} ms"
    lines = [template.format(n=10 + step % 50, h=identifier(step), v=f"{step / 7:.3f}") for step in range(5000)]
    assert not any(may_hold_progress(line.encode()) for line in lines)
    assert 0 < len(parsed) < 10


@pytest.mark.parametrize(
    "text", ["step 5", "loss: 1e-05", "lr 1.25e05", "epoch3", "12.5K tok/s", "iter 100000000 loss 0.123456789e-05"]
)
def test_figures_are_no_identifiers(text: str):
    assert "x1x" not in make_skeleton(text.encode())
    assert may_hold_progress(text.encode())
