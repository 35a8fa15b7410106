"""The live panel and the lines of a followed job, from events that were made up."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from kfjob.api.run import Run
from kfjob.cli import formatting, view_text
from kfjob.cli.display import Display, JsonDisplay, PlainDisplay
from kfjob.cli.panel import panel
from kfjob.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.observe.config import ObserveConfig
from kfjob.observe.view import JobView, reduce, reduce_all
from kfjob.trainer import metrics

SECOND = 1_000_000_000
START = 1_795_262_400 * SECOND
PODS = ("llama-worker-0", "llama-worker-1")
TOLD = metrics.StepMetrics(
    loss=2.5, lr=1e-4, grad_norm=0.5, samples_per_second=4.0, tokens_per_second=512, tokens_per_second_per_device=256,
    mfu=0.41, peak_memory=2**30,
)  # fmt: skip


def said(message: str, second: float, pod: str = PODS[0]) -> LogLine:
    return LogLine(pod=pod, text=f"2026-11-21 12:00:00 I [train.py:18] {message}", time=START + int(second * SECOND))


def running(losses: Iterable[float] = (9.0, 7.0, 5.0, 4.0)) -> list[Event]:
    made: list[Event] = [JobChanged(phase=JobPhase.RUNNING, created=START, started=START)]
    made += [PodChanged(pod=pod, phase=PodPhase.RUNNING, ready=True, restarts=index) for index, pod in enumerate(PODS)]
    for step, loss in enumerate(losses, 1):
        made.append(said(metrics.progress_line(step, loss=loss, speed=34.5, lr=3e-4), step * 10))
        made.append(said(metrics.metrics_line(step, TOLD), step * 10))
    return made


def view(events: Iterable[Event]) -> JobView:
    return reduce_all(JobView(config=ObserveConfig(workers=PODS, expected_steps=20)), events)


def drawn(shown: JobView, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(panel("llama", shown, width=width))
    return [line.rstrip() for line in cast("io.StringIO", console.file).getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_panel_has_a_line_for_each_thing(width: int):
    lines = drawn(view(running()), width)
    assert lines[1] == "llama  Running  40s"
    rows = {line.split()[0]: line for line in lines[2:]}
    assert list(rows) == ["progress", "loss", "speed", "pods", "master"]
    assert rows["progress"].endswith(" 20 %  step 4/20  2m40s left")
    room = min(40, width - 50)
    assert (rows["progress"].count("━"), rows["progress"].count("─")) == (room // 5, room - room // 5)
    assert "█▅▂▁" in rows["loss"]
    assert rows["loss"].endswith("4.0000 (9 at first)")
    assert rows["speed"].endswith("34.5 samples/s · MFU 41.0 % · lr 0.0003")
    assert rows["pods"].endswith("2/2 ready · 1 restart")
    assert rows["master"].endswith("llama-worker-0 (confirmed)")
    assert max(map(len, lines)) <= width


def test_a_panel_fits_where_names_do_not():
    pods = [PodChanged(pod="a-very-long-name-" * 8, phase=PodPhase.RUNNING, ready=True)]
    line = LogLine(pod=pods[0].pod, text="Batch 1 Loss: 2.5, Speed: 0.43 samples/sec, lr: 0.1", time=START)
    lines = drawn(view([JobChanged(phase=JobPhase.RUNNING, created=START), *pods, line]), 60)
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines[1:]] == ["llama", "progress", "loss", "speed", "pods", "master"]


def test_steps_that_did_not_count_are_told():
    more = [said("Step 5 skipped: loss is nan", 50), said("Step 6 rolled back to step-3: a spike", 60)]
    shown = view([*running(), *more, *more])
    assert "1 step skipped, 1 roll-back" in "\n".join(drawn(shown, 120))
    assert "1 step skipped, 1 roll-back" in view_text.status_text(shown, name="llama", now=START)
    told = view_text.view_json(shown)["progress"]
    assert (told["skipped"], told["rolled_back"], told["mfu"]) == (1, 1, 0.41)
    assert json.dumps(told)


def test_a_loss_that_is_no_number_is_left_out_of_the_curve():
    losses = [9.0, float("nan"), 5.0, float("inf")]
    assert formatting.sparkline(losses) == "█▁"
    assert not formatting.sparkline([float("nan")])
    lines = drawn(view(running(losses)), 80)
    assert any(line.startswith("loss") and "inf" in line for line in lines)


def shown_by(display: Display, events: Iterable[Event]) -> None:
    now = JobView(config=ObserveConfig(workers=PODS, expected_steps=20))
    for second, event in enumerate(events):
        now = reduce(now, event)
        display.update(now, event, float(second))


def made(kind: type[Display]) -> Display:
    return kind(cast("Run", SimpleNamespace(name="llama")))


def test_plain_lines(capsys: pytest.CaptureFixture[str]):
    more = [said("Step 5 skipped: loss is nan", 50), said(metrics.checkpoint_line("step-4", "/data/step-4", 1.5), 60)]
    shown_by(made(PlainDisplay), [*running(), *more])
    out, err = capsys.readouterr()
    assert not out
    whats = [line.split("  ", 2)[1:] for line in err.splitlines()]
    assert ["llama", "Running"] in whats
    assert [PODS[0], "Step 5 skipped: loss is nan"] in whats
    assert [PODS[0], "Checkpoint step-4 in 1.50 s /data/step-4"] in whats
    assert any("step 2/20 · loss 7.0000 (9 at first) · 34.5 samples/s" in what for _, what in whats)
    assert "\x1b" not in err


def test_json_lines(capsys: pytest.CaptureFixture[str]):
    shown_by(made(JsonDisplay), running())
    out, err = capsys.readouterr()
    assert not err
    told: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [one["step"] for one in told if one["kind"] == "progress"] == [1, 2, 3, 4]
    assert {"kind", "loss", "eta", "total", "skipped"} <= set(told[-1])
