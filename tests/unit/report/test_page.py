"""The report as a page: what it says, and that nothing which a job printed can act in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from typing import Any

import pytest
from jinja2.exceptions import UndefinedError

from kfjob.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.observe.log_spans import MAX_CONTAINERS, LogSpans
from kfjob.report.charts import Chart, Curve, lay_out_chart
from kfjob.report.numbers import choose_ticks, format_duration, format_number
from kfjob.report.page import render_page
from kfjob.report.templating import environment
from kfjob.trainer import metrics
from tests.unit.report.sample import HOSTILE, PODS, START, events, line, make_report

VOID = {"meta", "link", "img", "input"}


class Seen(HTMLParser):
    """What a parser makes of a page; it fails where tags are not closed in their order."""

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
    def said(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def of(self, tag: str, look: str = "") -> list[dict[str, str | None]]:
        return [named for name, named in self.tags if name == tag and look in [*(named.get("class") or "").split(" "), ""]]


def seen(happened: Iterable[Event], name: str = "llama") -> Seen:
    return Seen(render_page(make_report(happened, name)))


def test_it_says_all_that_there_is():
    said = seen(events()).said
    for part in (
        "899 of 2,000", "11.04 at first", "1 restart, 2 rounds", "llama-worker-1 confirmed", "A GPU has run out of memory",
        "What followed from it (2)", "Learning rate", "ended badly", "ip-10-0-0-3.ec2.internal", "FailedMount",
        "be careful", "FutureWarning: old", "registry.test/llama:7", "by kfjob 0.1.0, from 995 lines of log",
    ):  # fmt: skip
        assert part in said


def test_nothing_that_a_job_said_is_markup():
    page_seen = seen(events(), name=f"llama{HOSTILE}")
    assert len(page_seen.of("script")) == 1
    assert not page_seen.of("img")
    assert not [named for _, named in page_seen.tags if any(key.startswith("on") for key in named)]
    assert "<script>window.stolen=1</script>" in page_seen.said
    assert not re.search(r"[\x1b\u202e]", render_page(make_report(events())))


def digest(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def test_policy_allows_only_the_inlined_style_and_script():
    html = render_page(make_report(events()))
    parsed = Seen(html)
    assert not [named for _, named in parsed.tags if {"src", "style"} & set(named)]
    assert not parsed.of("link")
    assert "url(" not in html
    assert "@import" not in html
    policy = next(named["content"] or "" for named in parsed.of("meta") if named.get("http-equiv"))
    ((style,), (script,)) = (re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL) for tag in ("style", "script"))
    assert policy.split("; ") == [
        "default-src 'none'",
        f"style-src {digest(style)}",
        f"script-src {digest(script)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_only_links_of_ours_are_links():
    links = {named["href"] or "" for named in seen(events()).of("a")}
    assert links
    assert all(link.startswith("https://") for link in links)


def test_same_values_same_bytes():
    assert render_page(make_report(events())) == render_page(make_report(events()))


@pytest.mark.parametrize(
    ("happened", "words"),
    [
        ([], "state not known"),
        ([JobChanged(phase=JobPhase.PENDING, created=START)], "Pending"),
        ([PodChanged(pod="w-0", phase=PodPhase.PENDING)], "Nothing wrong was found."),
        ([LogLine(pod="w-0", text="hello")], "from 1 lines of log"),
        ([JobChanged(phase=JobPhase.FAILED, created=START, ended=START)], "no cause was found"),
    ],
)
def test_a_job_of_which_little_is_known(happened: list[Event], words: str):
    page_seen = seen(happened)
    assert words in page_seen.said
    assert not page_seen.of("svg")


def curves(page_seen: Seen, look: str = "chart") -> dict[str, dict[str, Any]]:
    return {
        (named["aria-label"] or "").split(":")[0]: json.loads(named["data-points"] or "") for named in page_seen.of("svg", look)
    }


def test_curves_hold_every_point():
    training = make_report(events()).view.training
    told = curves(seen(events()), "wide")
    assert set(told) == {"Loss"}
    assert len(told["Loss"]["loss"]) == len(training.curve) == 450
    assert told["Loss"]["loss"][-1][2:] == [f"{training.curve[-1].step}", format_number(training.curve[-1].loss)]
    assert {"Loss", "Speed", "Learning rate"} == set(curves(seen(events())))


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


def test_the_timeline_has_a_row_for_each_pod_and_a_bar_for_each_run():
    page_seen = seen(events())
    assert [len(page_seen.of("rect", look)) for look in ("waits", "before", "runs", "failed")] == [4, 1, 4, 4]
    assert len(page_seen.of("line", "round")) == 2
    assert len(page_seen.of("path", "cause")) == 1


def test_of_many_pods_those_with_trouble_are_drawn():
    pods = [f"big-worker-{index}" for index in range(300)]
    happened: list[Event] = [
        PodChanged(pod=pod, phase=PodPhase.RUNNING, replica_index=index, created=START, restarts=int(index == 250))
        for index, pod in enumerate(pods)
    ]
    happened += [line(pod, "hello", 5 + index) for index, pod in enumerate(pods)]
    page_seen = seen(happened)
    assert len(page_seen.of("text", "pod")) == 40
    assert "260 more pods are not drawn." in page_seen.said
    assert "big-worker-250: 1 lines" in page_seen.said


def test_spans_are_bounded():
    spans = LogSpans()
    for index in range(3 * MAX_CONTAINERS):
        spans.feed(line("w-0", "hello", index, f"c-{index}"))
    assert len(spans.by_pod["w-0"]) == MAX_CONTAINERS
    assert f"c-{3 * MAX_CONTAINERS - 1}" in spans.by_pod["w-0"]


def test_setbacks_and_mfu_are_told():
    told = metrics.StepMetrics(
        loss=2.0, lr=1e-4, grad_norm=0.5, samples_per_second=4.0, tokens_per_second=512, tokens_per_second_per_device=64,
        mfu=0.41, peak_memory=2**30,
    )  # fmt: skip
    says = (
        metrics.progress_line(3, loss=2.0, speed=4.0, lr=1e-4),
        metrics.metrics_line(3, told),
        "Step 4 skipped: loss is nan",
    )
    lines = [line(PODS[0], f"2026-11-21 12:00:00 I [train.py:18] {said}", 5) for said in says]
    said = seen(lines).said
    assert "samples/s · 512 tokens/s · MFU 41.0 %" in said
    assert "1 step skipped, 0 roll-backs" in said


def show(template: str, **values: object) -> str:
    return environment().from_string(template).render(values)


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
