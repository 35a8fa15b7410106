"""The live panel, the plain lines and the JSON lines of a followed job."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from kfjob.api.reader import LiveReader
from kfjob.backends.base import JobRef
from kfjob.cli import formatting, view_text
from kfjob.cli.display import Display, JsonDisplay
from kfjob.cli.live_display import panel
from kfjob.cli.view_json import view_json
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce, reduce_all
from kfjob.trainer import metrics

SECOND = 1_000_000_000
START = 1_795_262_400 * SECOND
REF = JobRef(backend="kubernetes", namespace="default", name="llama", uid="u")
PODS = ("llama-worker-0", "llama-worker-1")
METRICS = metrics.StepMetrics(
    loss=2.5, lr=1e-4, grad_norm=0.5, samples_per_second=4.0, tokens_per_second=512, tokens_per_second_per_device=256,
    mfu=0.41, peak_memory=2**30,
)  # fmt: skip


def log_line(message: str, second: float, pod: str = PODS[0]) -> LogLine:
    return LogLine(pod=pod, text=f"2026-11-21 12:00:00 I [train.py:18] {message}", time=START + int(second * SECOND))


def running(losses: Iterable[float] = (9.0, 7.0, 5.0, 4.0)) -> list[Event]:
    events: list[Event] = [JobChanged(phase=JobPhase.RUNNING, created=START, started=START)]
    events += [PodChanged(pod=pod, phase=PodPhase.RUNNING, ready=True, restarts=index) for index, pod in enumerate(PODS)]
    for step, loss in enumerate(losses, 1):
        events.append(log_line(metrics.progress_line(step, loss=loss, speed=34.5, lr=3e-4), step * 10))
        events.append(log_line(metrics.metrics_line(step, METRICS), step * 10))
    return events


def view(events: Iterable[Event]) -> JobView:
    return reduce_all(JobView(config=ObserveConfig(workers=PODS, expected_steps=20)), events)


def draw(job_view: JobView, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(panel("llama", job_view, width=width))
    return [line.rstrip() for line in cast("io.StringIO", console.file).getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_panel_has_one_row_per_value(width: int):
    lines = draw(view(running()), width)
    assert lines[1] == "llama  Running  40s"
    rows = {line.split()[0]: line for line in lines[2:]}
    assert list(rows) == ["progress", "loss", "speed", "pods", "master"]
    assert rows["progress"].endswith(" 20 %  step 4/20  2m40s left")
    bar_width = min(40, width - 50)
    assert (rows["progress"].count("━"), rows["progress"].count("─")) == (bar_width // 5, bar_width - bar_width // 5)
    assert "█▅▂▁" in rows["loss"]
    assert rows["loss"].endswith("4.0000 (9 at first)")
    assert rows["speed"].endswith("34.5 samples/s · MFU 41.0 % · lr 0.0003")
    assert rows["pods"].endswith("2/2 ready · 1 restart")
    assert rows["master"].endswith("llama-worker-0 (confirmed)")
    assert max(map(len, lines)) <= width


def test_panel_cuts_long_names():
    pods = [PodChanged(pod="a-very-long-name-" * 8, phase=PodPhase.RUNNING, ready=True)]
    line = LogLine(pod=pods[0].pod, text="Batch 1 Loss: 2.5, Speed: 0.43 samples/sec, lr: 0.1", time=START)
    lines = draw(view([JobChanged(phase=JobPhase.RUNNING, created=START), *pods, line]), 60)
    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines[1:]] == ["llama", "progress", "loss", "speed", "pods", "master"]


def test_skipped_and_rolled_back_steps_are_shown():
    more = [log_line("Step 5 skipped: loss is nan", 50), log_line("Step 6 rolled back to step-3: a spike", 60)]
    job_view = view([*running(), *more, *more])
    assert "1 step skipped, 1 roll-back" in "\n".join(draw(job_view, 120))
    assert "1 step skipped, 1 roll-back" in view_text.status_text(job_view, name="llama", now=START)
    progress = view_json(job_view)["progress"]
    assert (progress["skipped"], progress["rolled_back"], progress["mfu"]) == (1, 1, 0.41)
    assert json.dumps(progress)


def test_curve_leaves_out_nan_and_infinite_losses():
    losses = [9.0, float("nan"), 5.0, float("inf")]
    assert formatting.sparkline(losses) == "█▁"
    assert not formatting.sparkline([float("nan")])
    lines = draw(view(running(losses)), 80)
    assert any(line.startswith("loss") and "inf" in line for line in lines)


def feed(display: Display, events: Iterable[Event]) -> None:
    job_view = JobView(config=ObserveConfig(workers=PODS, expected_steps=20))
    for second, event in enumerate(events):
        job_view = reduce(job_view, event)
        display.update(job_view, event, float(second))


def create_display(kind: type[Display]) -> Display:
    return kind(cast("LiveReader", SimpleNamespace(ref=REF)))


def test_plain_display_prints_lines_to_stderr(capsys: pytest.CaptureFixture[str]):
    more = [log_line("Step 5 skipped: loss is nan", 50), log_line(metrics.checkpoint_line("step-4", "/data/step-4", 1.5), 60)]
    feed(create_display(Display), [*running(), *more])
    out, err = capsys.readouterr()
    assert not out
    messages = [line.split("  ", 2)[1:] for line in err.splitlines()]
    assert ["llama", "Running"] in messages
    assert [PODS[0], "Step 5 skipped: loss is nan"] in messages
    assert [PODS[0], "Checkpoint step-4 in 1.50 s /data/step-4"] in messages
    assert any("step 2/20 · loss 7.0000 (9 at first) · 34.5 samples/s" in text for _, text in messages)
    assert "\x1b" not in err


def test_json_display_prints_objects_to_stdout(capsys: pytest.CaptureFixture[str]):
    feed(create_display(JsonDisplay), running())
    out, err = capsys.readouterr()
    assert not err
    objects: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [value["step"] for value in objects if value["kind"] == "progress"] == [1, 2, 3, 4]
    assert {"kind", "loss", "eta", "total", "skipped"} <= set(objects[-1])
