"""The report as a page: its content, and that text of a job cannot act in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2.exceptions import UndefinedError

from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.joblog.pods.log_spans import MAX_CONTAINERS, LogSpans
from kfjob.report.charts import Chart, Curve, lay_out_chart
from kfjob.report.numbers import choose_ticks, format_duration, format_number
from kfjob.report.page import render_page
from kfjob.report.templating import make_environment
from kfjob.trainer import metrics
from tests.unit.report.sample import HOSTILE, PODS, START, events, line, make_report

VOID = {"meta", "link", "img", "input"}


class Page(HTMLParser):
    """A parsed page. The parser fails if tags are not closed in their order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def find(self, tag: str, css_class: str = "") -> list[dict[str, str | None]]:
        """Return the attributes of the elements."""
        elements = (attributes for name, attributes in self.tags if name == tag)
        return [each for each in elements if css_class in [*(each.get("class") or "").split(" "), ""]]


def render(job_events: Iterable[Event], name: str = "llama") -> Page:
    return Page(render_page(make_report(job_events, name)))


def test_page_shows_every_part_of_a_job():
    text = render(events()).text
    for part in (
        "899 of 2,000", "11.04 at the start", "1 restart, 2 rounds", "llama-worker-1 confirmed", "A GPU has run out of memory",
        "Consequences (2)", "Learning rate", "running before a restart", "ip-10-0-0-3.ec2.internal", "FailedMount",
        "be careful", "FutureWarning: old", "registry.test/llama:7", "by kfjob 0.1.0 from 995 log lines",
    ):  # fmt: skip
        assert part in text


def test_text_of_a_job_is_never_markup():
    parsed = render(events(), name=f"llama{HOSTILE}")
    assert len(parsed.find("script")) == 1
    assert not parsed.find("img")
    assert not [attributes for _, attributes in parsed.tags if any(key.startswith("on") for key in attributes)]
    assert "<script>window.stolen=1</script>" in parsed.text
    assert not re.search(r"[\x1b\u202e]", render_page(make_report(events())))


def digest(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def test_policy_allows_only_the_inlined_style_and_script():
    html = render_page(make_report(events()))
    parsed = Page(html)
    assert not [attributes for _, attributes in parsed.tags if {"src", "style"} & set(attributes)]
    assert not parsed.find("link")
    assert "url(" not in html
    assert "@import" not in html
    policy = next(attributes["content"] or "" for attributes in parsed.find("meta") if attributes.get("http-equiv"))
    ((style,), (script,)) = (re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL) for tag in ("style", "script"))
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {digest(style)}",
        f"script-src {digest(script)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_same_values_give_the_same_bytes():
    assert render_page(make_report(events())) == render_page(make_report(events()))


@pytest.mark.parametrize(
    ("job_events", "message"),
    [
        ([], "Unknown"),
        ([JobChanged(phase=JobPhase.PENDING, created=START)], "Pending"),
        ([PodChanged(pod="w-0", phase=PodPhase.PENDING)], "No problem was found."),
        ([LogLine(pod="w-0", text="hello")], "from 1 log line."),
        ([JobChanged(phase=JobPhase.FAILED, created=START, ended=START)], "kfjob found no cause"),
    ],
)
def test_page_of_a_job_with_few_facts(job_events: list[Event], message: str):
    parsed = render(job_events)
    assert message in parsed.text
    assert not parsed.find("svg")


def read_curves(parsed: Page, css_class: str = "chart") -> dict[str, dict[str, Any]]:
    return {
        (attributes["aria-label"] or "").split(":")[0]: json.loads(attributes["data-points"] or "")
        for attributes in parsed.find("svg", css_class)
    }


def test_charts_hold_every_point():
    training = make_report(events()).view.training
    curves = read_curves(render(events()), "wide")
    assert set(curves) == {"Loss"}
    assert len(curves["Loss"]["loss"]) == len(training.curve) == 450
    assert curves["Loss"]["loss"][-1][2:] == [f"{training.curve[-1].step}", format_number(training.curve[-1].loss)]
    assert {"Loss", "Speed", "Learning rate"} == set(read_curves(render(events())))


def general_events() -> Iterator[Event]:
    """Yield a job whose progress the general reader reads, with evaluation after every fifth step."""
    yield JobChanged(phase=JobPhase.RUNNING, created=START, started=START)
    for step in range(1, 41):
        yield line(PODS[1], f"iter {step} | ce loss {9 - step / 10:.2f} | lr {step / 1000}", step)
        if step % 5 == 0:
            yield line(PODS[1], f"iter {step} | val loss {10 - step / 10:.2f}", step + 0.5)


def test_page_names_the_lines_of_the_general_reader():
    expected = "Pod with progress llama-worker-1 confirmed · lines like `iter 1 | ce loss 8.90 | lr 0.001`"
    assert expected in render(general_events()).text


def read_points(curve: list[list[Any]]) -> dict[int, float]:
    """Return the values that the cursor shows, by their steps."""
    return {int(step): float(value) for _, _, step, value in curve}


def test_curves_of_the_general_reader_have_each_step():
    page = render(general_events())
    narrow, wide = read_curves(page), read_curves(page, "wide")
    assert read_points(wide["Loss"]["loss"]) == {step: pytest.approx(9 - step / 10) for step in range(1, 41)}
    assert read_points(narrow["Evaluation loss"]["loss"]) == {step: pytest.approx(10 - step / 10) for step in range(5, 41, 5)}
    assert read_points(narrow["Learning rate"]["lr"]) == {step: pytest.approx(step / 1000) for step in range(1, 41)}


def loss_chart(points: Sequence[tuple[float, float | None]]) -> Chart | None:
    return lay_out_chart("Loss", [Curve(name="loss", points=points, css_class="main")])


def test_nan_loss_is_a_gap():
    chart = loss_chart([(1, 9.0), (2, 8.0), (3, float("nan")), (4, 7.0), (5, 6.0)])
    assert chart
    (picture,) = chart.pictures
    assert [path.css_class for path in picture.paths] == ["line main", "notfinite", "line main"]
    assert "nan" not in f"{picture.label} {picture.points} {[path.data for path in picture.paths]}".lower()


def test_one_point_gives_no_chart():
    assert loss_chart([(1, 2.0)]) is None


def test_one_spike_does_not_flatten_the_curve():
    chart = loss_chart([(step, 2.0 + 1 / step) for step in range(1, 300)] + [(300, 1e6)])
    assert chart
    assert max(float(tick.text) for tick in chart.pictures[0].y_ticks) < 10


def test_timeline_has_a_row_for_each_pod_and_a_bar_for_each_container_run():
    parsed = render(events())
    assert [len(parsed.find("rect", css_class)) for css_class in ("waits", "before", "runs", "failed")] == [4, 1, 4, 4]
    assert len(parsed.find("line", "round")) == 2
    assert len(parsed.find("path", "cause")) == 1


def test_timeline_of_many_pods_prefers_those_with_restarts():
    pods = [f"big-worker-{index}" for index in range(300)]
    job_events: list[Event] = [
        PodChanged(pod=pod, phase=PodPhase.RUNNING, replica_index=index, created=START, restarts=int(index == 250))
        for index, pod in enumerate(pods)
    ]
    job_events += [line(pod, "hello", 5 + index) for index, pod in enumerate(pods)]
    parsed = render(job_events)
    assert len(parsed.find("text", "pod")) == 40
    assert "260 more pods not shown." in parsed.text
    assert "big-worker-250: 1 line in" in parsed.text


def test_spans_are_bounded():
    spans = LogSpans()
    for index in range(3 * MAX_CONTAINERS):
        spans.feed(line("w-0", "hello", index, f"c-{index}"))
    assert len(spans.by_pod["w-0"]) == MAX_CONTAINERS
    assert f"c-{3 * MAX_CONTAINERS - 1}" in spans.by_pod["w-0"]


def test_setbacks_and_mfu_are_shown():
    step_metrics = metrics.StepMetrics(
        loss=2.0, lr=1e-4, grad_norm=0.5, samples_per_second=4.0, tokens_per_second=512, tokens_per_second_per_device=64,
        mfu=0.41, peak_memory=2**30,
    )  # fmt: skip
    messages = (
        metrics.progress_line(3, loss=2.0, speed=4.0, lr=1e-4),
        metrics.metrics_line(3, step_metrics),
        "Step 4 skipped: loss is nan",
    )
    lines = [line(PODS[0], f"2026-11-21 12:00:00 I [train.py:18] {message}", 5) for message in messages]
    text = render(lines).text
    assert "samples/s · 512 tokens/s · MFU 41.0 %" in text
    assert "1 step skipped, 0 rollbacks" in text


def show(template: str, **values: object) -> str:
    return make_environment().from_string(template).render(values)


def test_values_are_cleaned_and_escaped_in_every_template():
    assert show("{{ value }}", value='<a href="x">\x00\ud800') == "&lt;a href=&#34;x&#34;&gt;\ufffd\ufffd"
    assert show("{{ value | prose }}", value="use `a<b` or ` alone\x00") == "use <code>a&lt;b</code> or ` alone\ufffd"


def test_unknown_names_in_templates_are_errors():
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        show("{{ name }}")


def test_numbers_are_short():
    assert [format_number(value) for value in (0.0, 1234567.0, 3e-6, float("nan"), float("-inf"), 899.0)] == [
        "0", "1.23e6", "3e-6", "NaN", "−∞", "899",
    ]  # fmt: skip
    durations = [format_duration(seconds) for seconds in (0.4, 61, 7322, 90000, None)]
    assert durations == ["0 s", "1 min 1 s", "2 h 2 min", "1 d 1 h", "–"]


def test_ticks_are_round_numbers():
    assert choose_ticks(0.0, 1.0) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert choose_ticks(3.0, 3.0) == [3.0]
