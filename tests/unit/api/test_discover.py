"""master: how many questions an answer takes, what is remembered, and what `--watch`, `--all` and saved logs show."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.api.excerpts import TAIL_LINES
from kfjob.api.master import cache, discover
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.api.view import THREADS
from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.fake import FakeBackend
from kfjob.events import Event, JobPhase, LogGap, LogLine, PodChanged, PodPhase
from kfjob.observe.master import Confidence, Master
from kfjob.spec.observe_config import ObserveConfig
from kfjob.units import SECOND
from tests.unit.api import script

PODS = 64


class Counted(FakeBackend):
    """Counts the questions after logs."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, LogRange, PodChanged | None]] = []
        self.most_open = 0
        self._open = 0
        self._lock = threading.Lock()

    def logs(
        self, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
    ) -> Iterator[LogLine | LogGap]:
        self.requests.append((pod, log_range, pod_state))
        lines = super().logs(ref, pod, replace(log_range, tail=None), pod_state=pod_state)
        texts = [line for line in lines if isinstance(line, LogLine)]
        if log_range.limit_bytes is not None:
            ends = itertools.accumulate(len(line.text) + 1 for line in texts)
            texts = [line for line, end in zip(texts, ends, strict=True) if end <= log_range.limit_bytes]
        self._count(1)
        time.sleep(0.001)  # lets other threads run
        yield from texts[-log_range.tail :] if log_range.tail else texts
        self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self._open += more
            self.most_open = max(self.most_open, self._open)

    @property
    def pods_read(self) -> list[str]:
        return list(dict.fromkeys(pod for pod, _, _ in self.requests))


def now(line: LogLine, ago: float = 5.0) -> LogLine:
    return replace(line, time=time.time_ns() - int(ago * SECOND))


def block(index: int, rank: int, owner: int) -> list[LogLine]:
    lines = script.block(index, rank, 1)
    return [replace(line, text=line.text.replace("train-worker-1", f"train-worker-{owner}")) for line in lines]


def job(first: int = 37, *, progress: bool = True, ago: float = 5.0, filler: int = 0, printer: int | None = None) -> Counted:
    """64 pods; `first` has rank 0 and, unless said otherwise, prints."""
    events: list[Event] = [script.job(JobPhase.RUNNING, started=script.START)]
    for index in range(PODS):
        events.append(script.pod(index, PodPhase.RUNNING))
        events += block(index, (index - first) % PODS, first)
        events += [script.line(index, f"{'noise ' * 100}{number}", 2) for number in range(filler)]
        if progress and index == (first if printer is None else printer):
            events += [now(script.progress(index, step, 8.0 - step / 10), ago + 20 - step) for step in range(1, 21)]
    backend = Counted()
    backend.play("train", *events)
    return backend


def find(backend: Counted, rendezvous: str = "etcd") -> Master:
    snapshot = backend.get("train", namespace="default")
    ref = JobRef(backend="kubernetes", namespace="default", name="train", uid=snapshot.uid, launch="l1")
    config = ObserveConfig(workers=tuple(pod.pod for pod in snapshot.pods), rendezvous=rendezvous)
    target = Target(Settings(state=Path(os.devnull)), "kubernetes", "default")
    target.__dict__["cluster"] = backend
    return discover.discover_master(LiveReader(target, ref, config)).master


def test_two_logs_tell_who_prints_among_many():
    backend = job()
    answer = find(backend)
    assert (answer.pod, answer.confidence, answer.group_rank) == ("train-worker-37", Confidence.CONFIRMED, 0)
    assert backend.pods_read == ["train-worker-0", "train-worker-37"]  # the first one's master_addr named the other


def test_long_logs_are_read_from_both_ends():
    backend = job(filler=1000)
    answer = find(backend)
    assert (answer.pod, answer.group_rank) == ("train-worker-37", 0)
    assert [pod for pod, log_range, _ in backend.requests if log_range.limit_bytes] == ["train-worker-0", "train-worker-37"]
    assert all((log_range.tail or 0) <= TAIL_LINES for _, log_range, _ in backend.requests)


def test_a_predicted_printer_is_asked_first():
    backend = job(first=0)
    assert find(backend, "c10d").pod == "train-worker-0"
    assert backend.pods_read == ["train-worker-0"]


@pytest.mark.parametrize(
    ("how", "pod", "confidence"),
    [
        ({"progress": False}, "train-worker-37", Confidence.LIKELY),  # another rank may print
        ({"ago": 300.0}, "train-worker-37", Confidence.CONFIRMED),  # another pod may have taken over since
        ({"printer": 36}, "train-worker-36", Confidence.CONFIRMED),  # the last rank prints, as in Megatron
    ],
)
def test_where_that_is_not_enough_all_tails_are_read(how: dict[str, Any], pod: str, confidence: Confidence):
    backend = job(**how)
    answer = find(backend)
    assert (answer.pod, answer.confidence) == (pod, confidence)
    assert len(backend.pods_read) == PODS
    assert 1 < backend.most_open <= THREADS  # each is a connection


def test_a_line_that_was_cut_is_not_read():
    backend = job(filler=1000)
    find(backend)
    assert all(state is not None for _, _, state in backend.requests)  # nobody has to ask for the pod again


@pytest.fixture
def running(fake, monkeypatch):
    """Two workers that print now; every question to the cluster is counted."""
    lines = [now(event) if isinstance(event, LogLine) and "Batch" in event.text else event for event in script.TRAINING]
    fake.play("train", *lines, spec=script.SPEC)
    questions: list[str] = []
    for verb in ("get", "pods", "logs", "watch", "list"):
        method = getattr(fake, verb)

        def counted(*arguments: Any, verb: str = verb, method: Any = method, **named: Any) -> Any:
            questions.append(verb)
            return method(*arguments, **named)

        monkeypatch.setattr(fake, verb, counted)
    return questions


def test_the_job_is_looked_at_once_and_later_anew(fake, kfjob, running, monkeypatch):
    assert kfjob("master", "train", "-o", "name") == 0
    assert running.count("get") == 1
    monkeypatch.setattr("kfjob.api.reader.FRESH_SECONDS", 0.0)
    running.clear()
    assert kfjob("master", "train", "--fresh", "-o", "name") == 0
    assert running.count("get") == 2


def test_a_second_call_is_one_question(fake, kfjob, running):
    assert kfjob("master", "train", "-o", "name") == 0
    assert kfjob.out == "train-worker-1\n"
    running.clear()
    assert kfjob("master", "train") == 0
    assert kfjob.out.startswith("`train-worker-1` on node `node-1` (global ranks 0) prints progress, confirmed\n")
    assert "the pods are the same since" in kfjob.out
    assert running == ["pods", "get"]  # FakeBackend's `pods` asks itself
    running.clear()
    assert kfjob("master", "train", "--fresh", "-o", "name") == 0
    assert "logs" in running
    running.clear()
    assert kfjob("master", "train", "-n", "other") == 3  # another namespace's job is another job


@pytest.mark.parametrize("change", [{"uid": "anew"}, {"container_id": "restarted"}, {"phase": PodPhase.FAILED}])
def test_what_was_remembered_of_other_pods_or_containers_does_not_hold(fake, kfjob, running, change):
    kfjob("master", "train")
    held = fake.jobs["default", "train"]
    pods = held.snapshot.pods
    held.snapshot = replace(held.snapshot, pods=(replace(pods[0], **change), *pods[1:]))
    running.clear()
    assert kfjob("master", "train") == 0
    assert "logs" in running


def test_what_was_remembered_is_forgotten(fake, kfjob, running, monkeypatch):
    kfjob("master", "train")
    later = time.time_ns() + cache.LIFETIME
    with monkeypatch.context() as patched:
        patched.setattr("kfjob.api.master.cache.time", SimpleNamespace(time_ns=lambda: later))
        running.clear()
        assert kfjob("master", "train") == 0
        assert "logs" in running
    running.clear()
    held = fake.jobs["default", "train"]
    held.snapshot = replace(held.snapshot, uid="a later one")
    assert kfjob("master", "train") == 0
    assert "logs" in running


def test_an_answer_that_is_not_confirmed_is_not_remembered(fake, kfjob, tmp_path):
    fake.play("train", *script.STARTING, *script.block(0, 1, 5), *script.block(1, 0, 5), spec=script.SPEC)
    assert kfjob("master", "train") == 0
    assert "likely" in kfjob.out
    assert not list((tmp_path / "state").rglob("*.json"))


def test_a_remembered_file_that_is_broken_does_no_harm(fake, kfjob, running, tmp_path):
    kfjob("master", "train")
    (file,) = (tmp_path / "state" / "cache" / "master").glob("*.json")
    kept = json.loads(file.read_text())
    for text in ("", "{", "[]", json.dumps(kept | {"master": {}})):
        file.write_text(text)
        assert kfjob("master", "train", "-o", "name") == 0
        assert kfjob.out == "train-worker-1\n"


def test_every_pod_with_its_ranks_in_every_round(fake, kfjob):
    again = [*script.block(0, 0, 100), *script.block(1, 1, 100), script.progress(0, 101, 5.0)]
    fake.play("train", *script.TRAINING, *again, spec=script.SPEC)
    assert kfjob("master", "train", "--all") == 0
    table = [line.split() for line in kfjob.out.splitlines()[:3]]
    assert table == [
        ["POD", "NODE", "STATE", "11:06:45", "11:08:20"],
        ["*", "train-worker-0", "node-0", "Running", "1", "(1)", "0", "(0)"],
        ["train-worker-1", "node-1", "Running", "0", "(0)", "1", "(1)"],
    ]
    assert kfjob("master", "train", "--all", "-o", "json") == 0
    said = json.loads(kfjob.out)
    assert said["master"]["pod"] == "train-worker-0"
    ranks = [{one["pod"]: one["group_rank"] for one in each["members"]} for each in said["rounds"]]
    assert ranks == [{"train-worker-0": 1, "train-worker-1": 0}, {"train-worker-0": 0, "train-worker-1": 1}]


def test_hand_overs_are_told_as_they_happen(fake, kfjob, monkeypatch):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    later = [*script.block(0, 0, 100), *script.block(1, 1, 100), script.progress(0, 101, 5.0)]
    steps = iter(
        [
            lambda: None,
            lambda: fake.play("train", *script.TRAINING, *later, spec=script.SPEC),
            lambda: fake.play("train", *script.TRAINING, *later, *script.SUCCEEDED[-3:], spec=script.SPEC),
        ]
    )
    monkeypatch.setattr(
        "kfjob.api.master.discover.time",
        SimpleNamespace(sleep=lambda _: next(steps)(), monotonic=time.monotonic, time_ns=time.time_ns),
    )
    assert kfjob("master", "train", "--watch", "-o", "name") == 0
    assert kfjob.out.split() == ["train-worker-1", "train-worker-0"]
    steps = iter([lambda: fake.play("train", *script.SUCCEEDED, spec=script.SPEC)])
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("master", "train", "--watch") == 0
    assert kfjob.out == "11:07:10  `train-worker-1` on node `node-1` (global ranks 0) prints progress, confirmed\n"


@pytest.mark.parametrize("layout", ["{pod}.previous.log", "{pod}/pytorch.previous.log"])
def test_saved_logs_of_containers_before_a_restart_are_evidence(kfjob, fake, tmp_path, layout):
    saved = tmp_path / "saved"
    for index in range(2):
        file = saved / layout.format(pod=f"train-worker-{index}")
        file.parent.mkdir(parents=True, exist_ok=True)
        before = [*script.block(index, 1 - index, 1), *([script.progress(1, 1, 8.0)] if index else [])]
        file.write_text("".join(f"{line.text}\n" for line in before))
        file.with_name(file.name.replace(".previous", "")).write_text("Traceback (most recent call last):\n")
    assert kfjob("master", "--from", str(saved)) == 0
    assert kfjob.out.startswith("`train-worker-1` (global ranks 0) prints progress, confirmed\n")
    assert "from before the container of `train-worker-1` restarted" in kfjob.out
    assert kfjob("logs", "--from", str(saved), "--pod", "train-worker-1", "--previous", "--tail", "1") == 0
    assert "Batch 1 " in kfjob.out


@pytest.mark.parametrize("said", ["5m", "300", "0.01"])
def test_waiting_takes_durations(kfjob, fake, said):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("master", "train", "--wait", said, "-o", "name") == 0
    assert kfjob("master", "train", "--wait", "soon") == 2
    assert "is not a duration" in kfjob.err
