"""Whatever a job prints and a cluster reports, every view of it can be shown: as text, JSON, panel and page."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from kfjob.cli.diagnose import diagnosis_json, diagnosis_text
from kfjob.cli.formatting import format_age, local_clock, sparkline, utc_clock
from kfjob.cli.live_display import panel
from kfjob.cli.view_json import rounds_json, training_json, view_json
from kfjob.cli.view_text import rounds_text, status_text
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.events import (
    Event,
    JobChanged,
    JobPhase,
    KubernetesEvent,
    LinesSkipped,
    LogGap,
    LogLine,
    OpenLine,
    PodChanged,
    PodPhase,
    Tick,
    WorkloadStatus,
)
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.log_spans import LogSpans
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.report.charts import Curve, lay_out_chart
from kfjob.report.numbers import choose_ticks, choose_time_ticks, format_duration, format_number, format_time
from kfjob.report.page import Report, render_page

MAX_PAGE = 2_000_000
NOW = 1_795_000_000 * 10**9
DAY = 86_400 * 10**9
PODS = ("job-worker-0", "job-worker-1")

numbers = st.sampled_from(
    ["0", "1", "7", "-1", "1e308", "-1e308", "1e999", "nan", "inf", "-inf", "1e-320", "²", "9" * 19, "9" * 400, "10" * 2000]
)
dates = st.sampled_from(["0001-01-01", "9999-12-31", "1969-12-31", "2026-11-22", "2026-13-45", "2262-05-01"])
clocks = st.sampled_from(["00:00:00", "23:59:59", "08:30:00,123", "25:61:61"])
TRAINER = "{date} {clock} I [train.py:18] "
AGENT = "I1121 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552]"
templates = st.sampled_from(
    [
        "{date} {clock} I [train.py:102] Batch {a} Loss: {b}, Speed: {c} samples/sec, lr: {d}",
        "{date} {clock} I [train.py:103] Step {a} tokens/s: {b}, grad norm: {c}, peak memory: {d} GiB, MFU: {a} %",
        TRAINER + "Start m with {a} parameters, strategy s, world size {b}, global batch {c} samples, {d} steps",
        TRAINER + "Checkpoint step-{a} in {b} s /c/step-{a}",
        TRAINER + "Evaluation step {a} loss {b}, perplexity {c}",
        TRAINER + "Step {a} rolled back to step-{b}: loss {c}",
        TRAINER + "Startup {a} s: imports {b}, data {c}",
        TRAINER + 'Outcome failed step {a} loss {b} checkpoint none reason "\\x{c}"',
        "{{'loss': {a}, 'learning_rate': {b}, 'epoch': {c}}}",
        "step {a}/{b} | loss: {c} | tok/sec: {d}",
        "[{date} {clock}] iteration {a}/ {b} | global batch size: {c} | elapsed time per iteration (ms): {d} | lm loss: {c} |",
        "Epoch {a}: 12%|█ | {b}/{c} [00:01<02:00, {d}it/s, loss={a}]",
        "Epoch {a}: 12%|█ | {b}/{c} [00:01<02:00, {d}s/it, loss={a}]",
        AGENT + "   group_rank={a}",
        AGENT + "   global_ranks=[{a}, {b}]",
        AGENT + " [default] Rendezvous complete for workers. Result:",
        "I0230 06:18:58.464000 1 torch/distributed/elastic/agent/server/api.py:552]   group_world_size={a}",
        "torchelastic.worker.status.START {{" + '"a":{{' * 900,
        "Starting elastic_operator with launch configs:",
        "  nproc_per_node             : {a}",
        "  min_nodes                  : {b}",
        "[rank{a}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {b} GiB",
        "Traceback (most recent call last):",
        "RuntimeError: {a}",
        "{date}T{clock}Z {date} {clock} UserWarning: {a}",
        "failed (exitcode: {a}) local_rank: {b} (pid: 1)",
    ]
)  # fmt: skip
texts = st.one_of(
    st.builds(
        lambda template, date, clock, a, b, c, d: template.format(date=date, clock=clock, a=a, b=b, c=c, d=d),
        templates, dates, clocks, numbers, numbers, numbers, numbers,
    ),
    st.text(max_size=40),
)  # fmt: skip
times = st.sampled_from(
    [None, 0, -1, 1, -(10**30), 10**30, 10**18, 2**63, NOW, NOW - 1, NOW + 1, NOW - 40 * DAY, NOW + 400 * DAY, -NOW]
)
known_times = st.sampled_from([0, 1, 10**18, 2**63 - 1, NOW, NOW - 1, NOW + 1, NOW - 40 * DAY, NOW + 400 * DAY])
"""Times that kfjob has read from a clock or parsed from a line: `parse_line` returns no others."""
counts = st.sampled_from([0, 1, 2, -1, 10**18, 10**30])
pods = st.sampled_from(PODS)
containers = st.sampled_from(["", "a", "b"])
words = st.sampled_from(["", "Error", "CrashLoopBackOff", "OOMKilled", "x" * 5000])
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(LogLine, pod=pods, text=texts, time=st.one_of(st.none(), known_times), container_id=containers),
    st.builds(LogLine, pod=pods, text=texts, time=st.one_of(st.none(), known_times), container_id=containers),
    st.builds(OpenLine, pod=pods, text=texts, time=known_times, container_id=containers),
    st.builds(LinesSkipped, pod=pods, count=counts, container_id=containers),
    st.builds(LogGap, pod=pods, container_id=containers, after=times, reason=words),
    st.builds(
        PodChanged, pod=pods, phase=st.sampled_from(PodPhase), replica_index=counts, ready=st.booleans(), restarts=counts,
        container_id=containers, exit_code=st.one_of(st.none(), counts), reason=words, message=words, created=times,
        started=times, time=times, last_ended=times, last_reason=words,
    ),
    st.builds(
        JobChanged, phase=st.sampled_from(JobPhase), reason=words, message=words, created=times, started=times, ended=times,
        time=times,
    ),
    st.builds(
        KubernetesEvent, kind=st.sampled_from(["Pod", "PyTorchJob"]), name=pods, reason=words, message=texts,
        warning=st.booleans(), count=counts, first=times, time=times, uid=words,
    ),
    st.builds(WorkloadStatus, name=st.just("job"), admitted=st.booleans(), reason=words, message=words, time=times),
    st.builds(Tick, time=known_times),
)  # fmt: skip
configs = st.sampled_from(
    [
        ObserveConfig(),
        ObserveConfig(trainer="kfjob", expected_steps=0, workers=PODS, processes_per_node=1),
        ObserveConfig(progress_pattern=r"(?P<step>\S+)/(?P<total>\S+) .*(?P<loss>\d+)", expected_steps=10**18),
    ]
)


def show_all(config: ObserveConfig, stream: list[Event], now: int) -> str:
    """Return the page, after every other form of the view was made."""
    view, symptoms, spans = JobView(config=config), SymptomCollector(), LogSpans()
    for event in stream:
        view = reduce(view, event)
        symptoms.feed(event, view)
        spans.feed(event)
    diagnosis = diagnose(symptoms, view, job="job")
    status_text(view, name="job", now=now)
    rounds_text(view)
    diagnosis_text("job", diagnosis)
    for value in (view_json(view), rounds_json(view), diagnosis_json(diagnosis), training_json(view.training)):
        json.dumps(value)
    console = Console(width=100)
    with console.capture():
        console.print(panel("job", view))
    for news in view.news:
        local_clock(news.time or 0)
    return render_page(Report(name="job", view=view, diagnosis=diagnosis, spans=spans.by_pod, created=now))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(configs, st.lists(events, max_size=12), known_times)
def test_every_stream_of_events_can_be_shown(config: ObserveConfig, stream: list[Event], now: int):
    assert len(show_all(config, stream, now)) < MAX_PAGE


@pytest.mark.long
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(configs, st.lists(events, max_size=30), known_times)
def test_many_streams_of_events_can_be_shown(config: ObserveConfig, stream: list[Event], now: int):
    assert len(show_all(config, stream, now)) < MAX_PAGE


@pytest.mark.parametrize("date", ["0001-01-01", "9999-12-31", "2261-12-31"])
def test_line_of_another_age_makes_no_huge_page(date: str):
    lines: list[Event] = [LogLine(pod=PODS[0], text="a", time=NOW), LogLine(pod=PODS[0], text="b", time=NOW + DAY)]
    hostile = f"{date} 00:00:00 I [train.py:102] Batch 2 Loss: 2.0, Speed: 1.0 samples/sec, lr: 0.1"
    assert len(show_all(ObserveConfig(), [*lines, LogLine(pod=PODS[0], text=hostile)], NOW)) < MAX_PAGE


@pytest.mark.parametrize("last", [1, 10**9, NOW, 10**19, 10**30])
def test_time_axis_has_few_ticks(last: int):
    assert len(choose_time_ticks(0, last)) <= 14


floats = st.floats(-1e100, 1e100)
"""Numbers of log lines that are not infinite."""


@given(floats, floats)
@example(-5e-324, 0.0)  # the smallest number
@example(0.0, 3e-308)
def test_axis_has_few_ticks(low: float, high: float):
    assert len(choose_ticks(low, high)) <= 14


@given(st.lists(st.tuples(floats, st.one_of(st.none(), st.floats(), floats)), max_size=30))
def test_curve_of_any_values_can_be_drawn(points: list[tuple[float, float | None]]):
    chart = lay_out_chart("loss", [Curve(name="loss", points=points, css_class="a")])
    assert chart is None or "nan" not in repr([path.data for path in chart.pictures[0].paths])


@given(st.lists(st.floats(), max_size=80))
def test_sparkline_of_any_values(values: list[float]):
    assert len(sparkline(values)) <= 32


def test_sparkline_of_huge_values():
    assert sparkline([-1.7e308, 1.7e308] * 40)
    assert sparkline([1.7e308] * 40 + [0.0])


@given(st.one_of(st.floats(), st.integers()))
def test_any_number_and_duration_has_a_short_text(value: Any):
    assert len(format_number(float(value) if abs(value) < 10**300 or not math.isfinite(value) else math.inf)) < 20
    assert len(format_duration(value)) < 40


@given(st.integers())
def test_any_time_has_a_text(time: int):
    texts = (format_time(time), utc_clock(time), local_clock(time), format_age(time, NOW))
    assert all(0 < len(text) < 40 for text in texts)
