"""An error that repeats is explained a limited number of times, and counted each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from kfjob.joblog.diagnose.engine import matching
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Incident
from kfjob.joblog.diagnose.engine.matching import MAX_EXPLAINED, MAX_TEXTS, Explanation, RepeatedTexts, explain, mask_numbers
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from tests.unit.diagnose.cases import line, lines

POD = "a-worker-0"
REPEATED = 3 * MAX_EXPLAINED
TRACEBACK = """Traceback (most recent call last):
  File "/app/data.py", line 41, in read
    return self.rows[index]
IndexError: index {number} is out of bounds
skipping it
"""
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate {number}.00 MiB. GPU 0 has a total capacity of 79.15 GiB"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    calls: Counter[str] = Counter()

    def count_explained(incident: Incident, *, pod: str) -> Explanation | None:
        calls["explain"] += 1
        return explain(incident, pod=pod)

    feed = IncidentReader.feed

    def count_read(self: IncidentReader, *args: Any) -> Iterator[Incident]:
        calls["read"] += 1
        return feed(self, *args)

    monkeypatch.setattr(matching, "explain", count_explained)
    monkeypatch.setattr(IncidentReader, "feed", count_read)
    return calls


def collect(text: str) -> tuple[JobView, SymptomCollector]:
    view, collector = JobView(), SymptomCollector()
    for event in lines(text, pod=POD):
        view = reduce(view, event)
        collector.feed(event, view)
    return view, collector


def repeat(template: str) -> str:
    return "".join(template.format(number=1000 + number) + "\n" for number in range(REPEATED))


def test_line_that_repeats_is_read_a_limited_number_of_times(calls: Counter[str]):
    _, collector = collect(repeat("ERROR loader: cannot read sample {number}, 17 bytes are missing"))
    assert calls["explain"] == calls["read"] == MAX_EXPLAINED
    assert collector.lines == REPEATED


def test_known_error_that_repeats_is_counted_each_time(calls: Counter[str]):
    _, collector = collect(repeat("ERROR loader: " + OUT_OF_MEMORY))
    assert calls["explain"] == MAX_EXPLAINED
    assert [(key[0], item.count) for key, item in collector.history.pods[POD].symptoms.items()] == [("cuda-oom", REPEATED)]


def test_traceback_that_repeats_is_explained_a_limited_number_of_times(calls: Counter[str]):
    _, collector = collect(repeat(TRACEBACK))
    assert calls["explain"] == 2 * MAX_EXPLAINED, "the exception, and the line after it"
    assert [item.count for item in collector.history.pods[POD].symptoms.values()] == [REPEATED]


def test_other_error_after_many_equal_ones_is_explained():
    noise = repeat("ERROR loader: cannot read sample {number}, 17 bytes are missing")
    view, collector = collect(noise + "RuntimeError: " + OUT_OF_MEMORY.format(number=3) + "\n")
    diagnosis = diagnose(collector, view, job="a")
    assert "cuda-oom" in str(diagnosis)


def test_warning_that_repeats_is_counted_each_time():
    _, collector = collect(repeat("WARNING loader: cannot read sample {number}, 17 bytes are missing"))
    assert [warning.count for warning in collector.warnings.ranked()] == [REPEATED]


def test_repetition_in_a_new_container_is_explained(calls: Counter[str]):
    text = "ERROR loader: " + OUT_OF_MEMORY.format(number=4)
    view, collector = JobView(), SymptomCollector()
    for container in ("a", "b"):
        for event in (line(text, pod=POD, container=container) for _ in range(MAX_EXPLAINED + 5)):
            view = reduce(view, event)
            collector.feed(event, view)
    assert calls["explain"] == 2 * MAX_EXPLAINED
    assert [item.count for item in collector.history.pods[POD].symptoms.values()] == [2 * (MAX_EXPLAINED + 5)]


def test_table_of_texts_is_bounded_and_keeps_what_repeats():
    table: RepeatedTexts[str] = RepeatedTexts()
    for number in range(MAX_EXPLAINED):
        table.add("often", f"meaning {number}")
    for number in range(2 * MAX_TEXTS):
        table.add(number, "")
        assert table.find("often") is not None
    assert len(table) == MAX_TEXTS
    assert table.find(0) is None


@pytest.mark.parametrize(("first", "second", "same"), [
    ("sample 7 of 12", "sample 1234 of 5", True), ("rate 1.5", "rate 10.25", True), ("file a1", "file b1", False),
])  # fmt: skip
def test_texts_that_differ_in_numbers_only_are_the_same(first: str, second: str, *, same: bool):
    assert (mask_numbers(first) == mask_numbers(second)) is same
