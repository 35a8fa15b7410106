"""Following a log over a kubelet that is cut off, restarts containers and rotates."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kfjob.backends.base import JobRef, LogEvent, LogRange
from kfjob.base.errors import Forbidden, NotFound, Unreachable
from kfjob.base.http import ConnectionLost
from kfjob.cluster.client import Client
from kfjob.cluster.logs import ATTEMPTS, read_pod_log
from kfjob.cluster.requests import Request
from kfjob.joblog.events import LinesSkipped, LogGap, LogLine, OpenLine, PodChanged, PodPhase
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply

SECOND = 1_000_000_000
START = 1_795_253_000 * SECOND
SILENCE = 'Get "https://10.0.0.7:10250/containerLogs/ml/llama-worker-0/pytorch?timestamps=true": dial tcp 10.0.0.7:10250: '
REF = JobRef(backend="kubernetes", namespace="ml", name="llama", uid="job-1")
POD = "llama-worker-0"
JOB = {"metadata": {"name": "llama", "uid": "job-1"}, "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}}


def stamped(time: int, text: str) -> bytes:
    second, rest = divmod(time, SECOND)
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z {text}\n".encode()


@dataclass
class Kubelet:
    """A pod whose container runs `logs` one after another; each answer to a followed log ends as `cuts` say."""

    logs: list[list[tuple[int, str]]]  # of each run: time and text
    cuts: Iterator[int | None]  # bytes that an answer has; None: it goes on until the run has ended
    clean: Iterator[bool]  # whether a cut looks like an end
    chunk: int = 7
    run: int = 0  # the one that runs now
    ended: bool = False
    absent_for: int = 0  # so many questions after the pod
    jobs: list[dict[str, Any]] = field(default_factory=lambda: [JOB])
    asked: list[Request] = field(default_factory=list)

    def answer(self, request: Request) -> FakeStream | ConnectionLost:
        self.asked.append(request)
        if request.resource == "pytorchjobs":
            return reply({"metadata": {"resourceVersion": "1"}, "items": self.jobs}) if request.verb == "list" else FakeStream()
        if request.subresource == "log":
            return self._log(dict(request.query))
        if request.verb == "watch":
            there = json.dumps({"type": "ADDED", "object": self._pod()}).encode() + b"\n"
            return FakeStream(pieces=[there] if self.absent_for == 0 else [])
        if self.absent_for > 0:
            self.absent_for -= 1
            return (
                refused(404, "NotFound", "no", kind="pods")
                if request.verb == "get"
                else reply({"metadata": {"resourceVersion": "1"}})
            )
        pod = self._pod()
        return reply(pod if request.verb == "get" else {"metadata": {"resourceVersion": "1"}, "items": [pod]})

    def _pod(self) -> dict[str, Any]:
        state = {"terminated": {"containerID": f"run-{self.run}"}} if self.ended else {"running": {}}
        status = {"name": "pytorch", "containerID": f"run-{self.run}", "restartCount": self.run, "state": state}
        if self.run:
            status["lastState"] = {"terminated": {"containerID": f"run-{self.run - 1}"}}
        return {
            "metadata": {
                "name": POD,
                "uid": "pod-1",
                "resourceVersion": "2",
                "ownerReferences": [{"kind": "PyTorchJob", "uid": "job-1"}],
            },
            "spec": {"containers": [{"name": "pytorch"}]},
            "status": {"phase": "Succeeded" if self.ended else "Running", "containerStatuses": [status]},
        }

    def _log(self, query: dict[str, str]) -> FakeStream | ConnectionLost:
        previous = query.get("previous") == "true"
        lines = self.logs[self.run - 1 if previous else self.run]
        since = query.get("sinceTime")
        begin = int(datetime.fromisoformat(since).timestamp()) * SECOND if since else 0
        wanted = [line for line in lines if line[0] >= begin]
        if "tailLines" in query:
            wanted = wanted[-int(query["tailLines"]) or len(wanted) :]
        data = b"".join(stamped(*line) for line in wanted)
        if query.get("follow") != "true":
            return FakeStream(pieces=self._pieces(data))
        cut = next(self.cuts, None)
        if cut is None or cut >= len(data):
            self._go_on()
            return FakeStream(pieces=self._pieces(data))
        broken = [] if next(self.clean, True) else [ConnectionLost("connection reset")]
        if cut == 0 and broken:
            return broken[0]
        return FakeStream(pieces=[*self._pieces(data[:cut]), *broken])

    def _pieces(self, data: bytes) -> list[bytes]:
        return [data[at : at + self.chunk] for at in range(0, len(data), self.chunk)]

    def _go_on(self) -> None:
        """The run has ended: the next one begins, or it was the last."""
        if self.run + 1 < len(self.logs):
            self.run += 1
        else:
            self.ended = True

    def client(self) -> Client:
        client = Client(FakeTransport(self.answer), host="https://cluster")
        client.pause = lambda seconds: True  # type: ignore[method-assign]  # noqa: ARG005 - no test waits
        return client

    def follow(self, **log_range: Any) -> list[LogLine | LogGap]:
        return list(read_pod_log(self.client(), REF, POD, LogRange(follow=True, **log_range)))

    def follow_losses(self) -> list[LogEvent]:
        return list(read_pod_log(self.client(), REF, POD, LogRange(follow=True), line_filter=lambda: select_losses))

    def read(self, **log_range: Any) -> list[LogLine | LogGap]:
        return list(read_pod_log(self.client(), REF, POD, LogRange(**log_range)))


def kubelet(
    *logs: list[tuple[int, str]], cuts: list[int] | None = None, clean: list[bool] | None = None, **more: Any
) -> Kubelet:
    return Kubelet(logs=list(logs), cuts=iter(cuts or ()), clean=iter(clean or ()), **more)


TEXTS = st.sampled_from(["", "x", "Loss: 1.5", "größer · 損失", "\r 10%|#  |\r 20%|## |", "2026-11-21T09:33:25Z not a stamp"])
STEPS = st.sampled_from([0, 1, 1_000, 300_000_000, SECOND, 5 * SECOND])


@st.composite
def runs(draw: st.DrawFn) -> list[list[tuple[int, str]]]:
    now, made = START, []
    for lines in draw(st.lists(st.lists(st.tuples(STEPS, TEXTS), max_size=12), min_size=1, max_size=3)):
        run, now = [], now + 1
        for step, text in lines:
            now += step
            run.append((now, text))
        made.append(run)
    return made


cut_anywhere = given(
    logs=runs(),
    cuts=st.lists(st.integers(min_value=0, max_value=500), max_size=10),
    clean=st.lists(st.booleans(), max_size=10),
    chunk=st.integers(min_value=1, max_value=200),
)


@cut_anywhere
def test_follow_yields_each_line_once_wherever_the_stream_is_cut(
    logs: list[list[tuple[int, str]]], cuts: list[int], clean: list[bool], chunk: int
):
    seen = Kubelet(logs=logs, cuts=iter(cuts), clean=iter(clean), chunk=chunk).follow()
    expected = [(f"run-{number}", time, text) for number, run in enumerate(logs) for time, text in run]
    assert [(line.container_id, line.time, line.text) for line in seen if isinstance(line, LogLine)] == expected
    assert not [line for line in seen if isinstance(line, LogGap)]


def select_losses(block: bytes) -> list[tuple[int, int]]:
    ends = [at for at, byte in enumerate(block) if byte == 10]
    lines = zip([0, *(end + 1 for end in ends)], ends, strict=False)
    return [(start, end) for start, end in lines if b"Loss" in block[start:end]]


@cut_anywhere
@example(logs=[[(START + 1, ""), (START + 1, "x")]], cuts=[32], clean=[], chunk=1)
@example(
    logs=[[(START + 1, ""), (START + 1, ""), (START + 2, ""), (START + 2, "")]], cuts=[0, 96, 0], clean=[False, False], chunk=1
)
def test_each_selected_line_comes_once_wherever_the_stream_is_cut(
    logs: list[list[tuple[int, str]]], cuts: list[int], clean: list[bool], chunk: int
):
    kubelet = Kubelet(logs=logs, cuts=iter(cuts), clean=iter(clean), chunk=chunk)
    events = kubelet.follow_losses()
    assert {event.text for event in events if isinstance(event, OpenLine)} <= {" 10%|#  |"}
    assert not [event for event in events if isinstance(event, LogGap)]
    shown = [(line.container_id, line.time, line.text) for line in events if isinstance(line, LogLine)]
    every = [(f"run-{number}", time, text) for number, run in enumerate(logs) for time, text in run]
    assert [one for one in shown if "Loss" in one[2]] == [one for one in every if "Loss" in one[2]]
    assert not Counter(shown) - Counter(every)
    assert {run: time for run, time, _ in shown} == {run: time for run, time, _ in every}  # the last of each container too


def test_skipped_lines_are_counted_and_one_line_per_second_comes():
    lines = [(START + at * SECOND // 10, "Loss: 1" if at == 34 else f"line {at}") for at in range(100)]
    events = kubelet(lines, chunk=60).follow_losses()
    selected = [event for event in events if isinstance(event, LogLine)]
    assert "Loss: 1" in texts(list(selected))
    assert 10 <= len(selected) <= 13
    number = 0
    for event in events:
        if isinstance(event, LinesSkipped):
            number += event.count
        elif isinstance(event, LogLine):
            assert lines[number] == (event.time, event.text)
            number += 1
    assert number == 100


def test_a_progress_bar_is_reported_while_its_line_is_open(monkeypatch):
    clock = itertools.count(step=0.3)
    monkeypatch.setattr("kfjob.cluster.logs.time.monotonic", lambda: next(clock))
    bar = "".join(f"\r {at}%|" for at in range(100))
    logs = [(START, "Loss: 1"), (START + SECOND, bar), (START + 2 * SECOND, "Loss: 2")]
    events = kubelet(logs, chunk=9).follow_losses()
    assert [(event.time, event.text) for event in events if isinstance(event, LogLine)] == logs
    drawn = [event for event in events if isinstance(event, OpenLine)]
    assert 10 < len(drawn) < 60  # one a second, by this clock
    at = [int(line.text.removeprefix(" ").removesuffix("%|")) for line in drawn]
    assert at == sorted(set(at))
    assert at[-1] > 90
    assert all(line.container_id == "run-0" and line.time > START + 3 * SECOND for line in drawn)
    assert all(isinstance(event, LogLine) for event in kubelet(logs, chunk=9).follow())


def test_a_filter_does_not_hide_an_error_of_the_kubelet():
    pod = kubelet(HUNDRED)
    said = [stamped(START, "x"), b"unable to retrieve container logs for containerd://1\n"]
    pod._log = lambda query: FakeStream(pieces=said)  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(NotFound, match="no log"):
        list(read_pod_log(pod.client(), REF, POD, LogRange(), line_filter=lambda: select_losses))


HUNDRED = [(START + at * SECOND // 10, f"line {at}") for at in range(100)]


def texts(lines: list[LogLine | LogGap]) -> list[str]:
    return [line.text for line in lines if isinstance(line, LogLine)]


def test_the_last_lines_are_asked_for_once_only():
    pod = kubelet(HUNDRED, cuts=[70, 200])
    assert texts(pod.follow(tail=5)) == [f"line {at}" for at in range(95, 100)]
    asked = [dict(request.query) for request in pod.asked if request.subresource == "log"]
    assert [query.get("tailLines") for query in asked] == ["5", None, None, None]
    assert all("sinceTime" in query for query in asked[1:])


def test_a_part_of_a_log():
    pod = kubelet(HUNDRED)
    assert texts(pod.read()) == [text for _, text in HUNDRED]
    assert texts(pod.read(tail=2)) == ["line 98", "line 99"]
    assert texts(pod.read(since=HUNDRED[97][0])) == ["line 97", "line 98", "line 99"]
    assert texts(pod.read(since=HUNDRED[97][0] + 1)) == ["line 98", "line 99"]
    assert texts(pod.read(limit_bytes=14)) == ["line 0", "line 1"]
    assert texts(pod.read(limit_bytes=13)) == ["line 0"]
    assert texts(pod.follow(limit_bytes=14)) == ["line 0", "line 1"]


def test_the_run_before_the_restart():
    pod = kubelet([(START, "first")], [(START + 1, "second")], run=1)
    assert texts(pod.read(previous=True)) == ["first"]
    assert texts(pod.read()) == ["second"]
    with pytest.raises(NotFound, match="was not restarted"):
        kubelet([(START, "first")]).read(previous=True)


def test_rotated_lines_leave_a_gap():
    pod = kubelet(HUNDRED, cuts=[200])
    log = pod._log

    def rotating(query: dict[str, str]) -> FakeStream | ConnectionLost:
        answer = log(query)
        pod.logs = [HUNDRED[50:]]
        return answer

    pod._log = rotating  # type: ignore[method-assign]
    seen = pod.follow()
    gaps = [at for at, line in enumerate(seen) if isinstance(line, LogGap)]
    assert len(gaps) == 1
    gap, before, after = seen[gaps[0]], seen[gaps[0] - 1], seen[gaps[0] + 1]
    assert isinstance(gap, LogGap)
    assert isinstance(before, LogLine)
    assert isinstance(after, LogLine)
    assert (gap.pod, gap.container_id, gap.after) == (POD, "run-0", before.time)
    assert (after.text, seen[-1]) == ("line 50", LogLine(pod=POD, text="line 99", time=HUNDRED[99][0], container_id="run-0"))


def test_a_missed_run_leaves_a_gap():
    pod = kubelet([(START, "first")], [], [], [(START + 9, "fourth")], cuts=[0])
    log = pod._log

    def fast(query: dict[str, str]) -> FakeStream | ConnectionLost:
        answer = log(query)
        pod.run = 3
        return answer

    pod._log = fast  # type: ignore[method-assign]
    seen = pod.follow()
    assert [type(line) for line in seen] == [LogGap, LogLine]
    assert texts(seen) == ["fourth"]


def test_errors_of_the_kubelet_are_no_lines():
    pod = kubelet([(START, "x")], ended=True)
    words = b"unable to retrieve container logs for containerd://run-0"
    pod._log = lambda query: FakeStream(pieces=[words])  # type: ignore[method-assign]  # noqa: ARG005
    (gap,) = pod.follow()
    assert isinstance(gap, LogGap)
    assert gap.reason == words.decode()
    with pytest.raises(NotFound, match="unable to retrieve container logs"):
        pod.read()


@pytest.mark.parametrize(("reason", "attempts"), [("connect: connection refused", ATTEMPTS), ("i/o timeout", 1)])
def test_log_of_a_node_that_does_not_answer_is_tried_again_only_if_the_machine_does(reason: str, attempts: int):
    pod = kubelet([(START, "x")])
    pod._log = lambda query: refused(500, "InternalError", SILENCE + reason)  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(NotFound, match="its node does not answer"):
        pod.read()
    assert sum(request.subresource == "log" for request in pod.asked) == attempts


def test_follow_goes_on_when_the_node_answers_again():
    pod = kubelet(HUNDRED, ended=True)
    answer, failures = pod._log, itertools.count()

    def fail_first(query: dict[str, str]) -> FakeStream | ConnectionLost:
        return refused(500, "InternalError", f"{SILENCE}i/o timeout") if next(failures) < 3 else answer(query)

    pod._log = fail_first  # type: ignore[method-assign]
    assert texts(pod.follow()) == [text for _, text in HUNDRED]


def test_a_line_without_end_is_cut():
    pod = kubelet([(START, "x" * 3_000_000), (START + 1, "y")], chunk=65536)
    long, short = texts(pod.read())
    assert len(long) < 1_100_000
    assert long.endswith(" more bytes of this line are not shown)")
    assert short == "y"


def test_a_pod_of_another_job_is_not_read():
    pod = kubelet([(START, "x")])
    other = JobRef(backend="kubernetes", namespace="ml", name="llama", uid="job-2")
    with pytest.raises(NotFound, match="belongs to something else"):
        list(read_pod_log(pod.client(), other, POD, LogRange()))


def test_follow_waits_for_a_pod_that_will_exist():
    assert texts(kubelet([(START, "x")], absent_for=2).follow()) == ["x"]
    with pytest.raises(NotFound, match="there is no pod"):
        kubelet([(START, "x")], absent_for=2).read()


@pytest.mark.parametrize("jobs", [[], [JOB | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}]])
def test_follow_does_not_wait_for_a_pod_that_will_not_exist(jobs: list[dict[str, Any]]):
    with pytest.raises(NotFound, match="there is no pod"):
        kubelet([(START, "x")], absent_for=1000, jobs=jobs).follow()


def test_an_unknown_container_is_an_error():
    with pytest.raises(NotFound, match="it has `pytorch`"):
        kubelet([(START, "x")]).follow(container="sidecar")


def test_a_long_outage_is_an_error(monkeypatch):
    clock = itertools.count(step=30.0)
    monkeypatch.setattr("kfjob.cluster.client.time.monotonic", lambda: next(clock))
    pod = kubelet(HUNDRED, cuts=[0] * 1000, clean=[False] * 1000)
    with pytest.raises(Unreachable, match="connection reset"):
        pod.follow()


def test_a_missing_permission_is_an_error_at_once():
    pod = kubelet([(START, "x")])
    message = 'pods "p" is forbidden: User "me" cannot get resource "pods/log" in API group "" in the namespace "ml"'
    pod._log = lambda query: refused(403, "Forbidden", message)  # type: ignore[method-assign]  # noqa: ARG005
    with pytest.raises(Forbidden):
        pod.follow()


def test_an_abandoned_reading_closes_its_stream():
    streams: list[FakeStream] = []
    pod = kubelet(HUNDRED)
    log = pod._log

    def kept(query: dict[str, str]) -> FakeStream | ConnectionLost:
        stream = log(query)
        assert isinstance(stream, FakeStream)
        streams.append(stream)
        return stream

    pod._log = kept  # type: ignore[method-assign]
    reading = read_pod_log(pod.client(), REF, POD, LogRange(follow=True))
    next(reading)
    assert not streams[0].closed
    reading.close()  # type: ignore[attr-defined]
    assert streams[0].closed


@pytest.mark.parametrize(("minutes", "log_range", "has_gap"), [(14, {}, False), (142, {}, True), (142, {"tail": 9}, False)])
def test_log_that_begins_long_after_its_container_is_marked(minutes: int, log_range: dict[str, Any], *, has_gap: bool):
    """The kubelet serves only the newest file of a rotated log."""
    state = PodChanged(pod=POD, phase=PodPhase.RUNNING, container_id="run-0", started=START)
    pod = kubelet([(START + minutes * 60 * SECOND, "Batch 400"), (START + 9999 * SECOND, "Batch 401")])
    events = list(read_pod_log(pod.client(), REF, POD, LogRange(**log_range), pod_state=state))
    gaps = [event for event in events if isinstance(event, LogGap)]
    assert bool(gaps) is has_gap
    assert [event.text for event in events if isinstance(event, LogLine)] == ["Batch 400", "Batch 401"]
    if has_gap:
        assert events[0] is gaps[0]
        assert gaps[0].reason.startswith("the log begins 142 min after its container started")
