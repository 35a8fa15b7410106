"""Displays say the epoch, the evaluation loss, and a loss that is no number, as soon as a line shows them."""

from __future__ import annotations

import json
import math

import pytest

from kfjob.cli.live_display import panel
from kfjob.cli.view_json import progress_json
from kfjob.cli.view_text import progress_line, status_text
from kfjob.joblog.events import JobPhase, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.report.charts import Curve, lay_out_chart
from tests.unit.api import script


def view_of(*texts: str) -> JobView:
    lines = [script.line(0, text, 10 + number) for number, text in enumerate(texts)]
    return reduce_all(JobView(), [script.job(JobPhase.RUNNING), script.pod(0, PodPhase.RUNNING), *lines])


STEPS = [f"epoch 1/3 step {step} loss {4 - step / 10}" for step in range(1, 6)]
BROKEN = [*STEPS, "epoch 2/3 step 6 loss nan", "epoch 2/3 step 7 loss nan"]


def test_epoch_and_evaluation_loss_are_part_of_the_progress():
    view = view_of(*STEPS, "epoch 1/3 step 5 val_loss 3.25", "epoch 2/3 step 6 loss 3.2")
    assert progress_line(view).startswith("epoch 2/3, step 6 · loss 3.2000")
    assert "eval loss 3.2500" in progress_line(view)
    assert "eval loss 3.2500" in status_text(view, name="train", now=0)
    assert progress_json(view)["evaluation_loss"] == 3.25


def test_nan_is_said_with_its_first_step_when_it_appears():
    view = view_of(*BROKEN)
    assert [news.text for news in view.news if news.kind == "loss"] == ["loss is NaN since step 6"]
    assert "warning    loss is NaN since step 6" in status_text(view, name="train", now=0)
    assert progress_json(view)["not_finite_since"] == 6
    recovered = view_of(*BROKEN, "epoch 2/3 step 8 loss 3.1")
    assert recovered.training.not_finite_since is None
    assert "warning" not in status_text(recovered, name="train", now=0)


def test_nan_is_red_in_the_live_panel():
    from io import StringIO

    from rich.console import Console

    def draw(view: JobView) -> str:
        out = StringIO()
        console = Console(file=out, force_terminal=True, color_system="standard", width=100)
        console.print(panel("train", view))
        return out.getvalue()

    assert "\x1b[1;31mnan" in draw(view_of(*BROKEN))
    assert "\x1b[1;31mloss is NaN since step 6" in draw(view_of(*BROKEN))
    assert "\x1b[1;31m" not in draw(view_of(*STEPS))


@pytest.mark.parametrize("broken", ["nan", "inf"])
def test_smoothed_curve_has_a_gap_where_the_loss_is_no_number(broken):
    texts = [*STEPS, f"epoch 2/3 step 6 loss {broken}", *(f"epoch 2/3 step {step} loss 3" for step in range(7, 10))]
    curve = view_of(*texts).training.curve
    assert [point.step for point in curve if point.smoothed is None] == [6]
    chart = lay_out_chart("Loss", [Curve(name="smoothed", points=[(p.step, p.smoothed) for p in curve], css_class="")])
    assert chart is not None
    lines = [path for path in chart.pictures[0].paths if path.css_class.startswith("line")]
    assert len(lines) == 2
    assert all(math.isfinite(y) for _, y, _, _ in json.loads(chart.pictures[0].points)["smoothed"])


@pytest.mark.parametrize(("group", "text"), [("speed", "3,290 tokens/s"), ("tokens_per_second", "3,290 tok/s")])
def test_speed_of_a_pattern_is_shown(group: str, text: str):
    config = ObserveConfig(progress_pattern=rf"it (?P<step>\d+) .*tok/s (?P<{group}>\d+)")
    view = reduce_all(JobView(config=config), [script.line(0, f"it {number} tok/s 3290", 10 + number) for number in range(3)])
    assert progress_line(view) == f"step 2 · {text}"
    assert f"step 2 · {text}" in status_text(view, name="train", now=0)
