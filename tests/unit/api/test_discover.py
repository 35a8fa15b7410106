"""Check `kfjob master`: its number of requests, its cache, and the output of `--watch`, `--all` and saved logs."""

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
from kfjob.backends import folder
from kfjob.backends.base import JobRef, LogRange
from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobPhase, JobSnapshot, LogGap, LogLine, PodChanged, PodPhase
from kfjob.joblog.master.evidence import Confidence, Master
from kfjob.joblog.observe_config import ObserveConfig
from tests.fakes.backend import FakeBackend
from tests.unit.api import script

PODS = 64


class CountingBackend(FakeBackend):
    """Records the requests for logs."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, LogRange, PodChanged | None]] = []
        self.max_open = 0
        self.is_parallel = threading.Event()  # set where two logs are open at the same time
        self.is_parallel.set()
        self._open = 0
        self._lock = threading.Lock()

    def logs(
        self, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
    ) -> Iterator[LogLine | LogGap]:
        self.requests.append((pod, log_range, pod_state))
        lines = super().logs(ref, pod, replace(log_range, tail=None), pod_state=pod_state)
        log_lines = [line for line in lines if isinstance(line, LogLine)]
        if log_range.limit_bytes is not None:
            ends = itertools.accumulate(len(line.text) + 1 for line in log_lines)
            log_lines = [line for line, end in zip(log_lines, ends, strict=True) if end <= log_range.limit_bytes]
        self._count(1)
        if len(self.requests) >= PODS // 2:  # the first ones are read alone
            self.is_parallel.wait(timeout=30)
        yield from log_lines[-log_range.tail :] if log_range.tail else log_lines
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self._open += change
            self.max_open = max(self.max_open, self._open)
            if self._open > 1:
                self.is_parallel.set()

    @property
    def pods_read(self) -> list[str]:
        return list(dict.fromkeys(pod for pod, _, _ in self.requests))


def recent(line: LogLine, ago: float = 5.0) -> LogLine:
    return replace(line, time=time.time_ns() - int(ago * SECOND))


def owned_block(index: int, rank: int, owner: int) -> list[LogLine]:
    lines = script.block(index, rank, 1)
    return [replace(line, text=line.text.replace("train-worker-1", f"train-worker-{owner}")) for line in lines]


def job(
    first: int = 37, *, progress: bool = True, ago: float = 5.0, filler: int = 0, printer: int | None = None
) -> CountingBackend:
    """Return a job of 64 pods. Pod `first` has rank 0 and, without `printer`, prints progress."""
    events: list[Event] = [script.job(JobPhase.RUNNING, started=script.START)]
    for index in range(PODS):
        events.append(script.pod(index, PodPhase.RUNNING))
        events += owned_block(index, (index - first) % PODS, first)
        events += [script.line(index, f"{'noise ' * 100}{number}", 2) for number in range(filler)]
        if progress and index == (first if printer is None else printer):
            events += [recent(script.progress(index, step, 8.0 - step / 10), ago + 20 - step) for step in range(1, 21)]
    backend = CountingBackend()
    backend.play("train", *events)
    return backend


def find(backend: CountingBackend, rendezvous: str = "etcd") -> Master:
    snapshot = backend.get("train", namespace="default")
    ref = JobRef(backend="kubernetes", namespace="default", name="train", uid=snapshot.uid, launch="l1")
    config = ObserveConfig(workers=tuple(pod.pod for pod in snapshot.pods), rendezvous=rendezvous)
    target = Target(Settings(state=Path(os.devnull)), "kubernetes", "default")
    target.__dict__["cluster"] = backend
    return discover.discover_master(LiveReader(target, ref, config, secrets=frozenset())).master


def test_two_logs_are_enough_to_find_the_master_of_many_pods():
    backend = job()
    master = find(backend)
    assert (master.pod, master.confidence, master.group_rank) == ("train-worker-37", Confidence.CONFIRMED, 0)
    assert backend.pods_read == ["train-worker-0", "train-worker-37"]  # `master_addr` in the first log names the second pod


def test_long_logs_are_read_from_both_ends():
    backend = job(filler=1000)
    master = find(backend)
    assert (master.pod, master.group_rank) == ("train-worker-37", 0)
    assert [pod for pod, log_range, _ in backend.requests if log_range.limit_bytes] == ["train-worker-0", "train-worker-37"]
    assert all((log_range.tail or 0) <= TAIL_LINES for _, log_range, _ in backend.requests)
    assert all(state is not None for _, _, state in backend.requests)  # no further request for the pod


def test_log_of_the_predicted_master_is_read_first():
    backend = job(first=0)
    assert find(backend, "c10d").pod == "train-worker-0"
    assert backend.pods_read == ["train-worker-0"]


@pytest.mark.parametrize(
    ("options", "pod", "confidence"),
    [
        ({"progress": False}, "train-worker-37", Confidence.LIKELY),  # another rank may print
        ({"ago": 300.0}, "train-worker-37", Confidence.CONFIRMED),  # another pod may print since then
        ({"printer": 36}, "train-worker-36", Confidence.CONFIRMED),  # the last rank prints, as in Megatron
    ],
)
def test_all_tails_are_read_without_sufficient_evidence(options: dict[str, Any], pod: str, confidence: Confidence):
    backend = job(**options)
    backend.is_parallel.clear()
    master = find(backend)
    assert (master.pod, master.confidence) == (pod, confidence)
    assert len(backend.pods_read) == PODS
    assert 1 < backend.max_open <= THREADS  # each log is a connection


@pytest.fixture
def requests(fake, monkeypatch):
    """Play two workers that print now, and return the list of requests to the cluster."""
    lines = [recent(event) if isinstance(event, LogLine) and "Batch" in event.text else event for event in script.TRAINING]
    fake.play("train", *lines, spec=script.SPEC)
    requests: list[str] = []
    for verb in ("get", "pods", "logs", "watch", "list"):
        method = getattr(fake, verb)

        def record(*arguments: Any, verb: str = verb, method: Any = method, **options: Any) -> Any:
            requests.append(verb)
            return method(*arguments, **options)

        monkeypatch.setattr(fake, verb, record)
    return requests


def test_job_is_read_once_and_again_when_stale(fake, kfjob, requests, monkeypatch):
    assert kfjob("master", "train", "-o", "name") == 0
    assert requests.count("get") == 1
    monkeypatch.setattr("kfjob.api.reader.FRESH_SECONDS", 0.0)
    requests.clear()
    assert kfjob("master", "train", "--fresh", "-o", "name") == 0
    assert requests.count("get") == 2


def test_second_call_uses_the_cache(fake, kfjob, requests):
    assert kfjob("master", "train", "-o", "name") == 0
    assert kfjob.out == "pod/train-worker-1\n"
    requests.clear()
    assert kfjob("master", "train") == 0
    assert kfjob.out.startswith("`train-worker-1` on node `node-1` (global rank 0) prints progress, confirmed\n")
    assert "the pods are the same since" in kfjob.out
    assert requests == ["pods", "get"]  # `pods` of FakeBackend calls `get`
    requests.clear()
    assert kfjob("master", "train", "--fresh", "-o", "name") == 0
    assert "logs" in requests
    requests.clear()
    assert kfjob("master", "train", "-n", "other") == 3  # the cache belongs to one namespace


@pytest.mark.parametrize("change", [{"uid": "new"}, {"container_id": "restarted"}, {"phase": PodPhase.FAILED}])
def test_cache_is_invalid_for_other_pods_or_containers(fake, kfjob, requests, change):
    kfjob("master", "train")
    state = fake.jobs["default", "train"]
    pods = state.snapshot.pods
    state.snapshot = replace(state.snapshot, pods=(replace(pods[0], **change), *pods[1:]))
    requests.clear()
    assert kfjob("master", "train") == 0
    assert "logs" in requests


def test_cache_expires_and_is_invalid_for_another_job(fake, kfjob, requests, monkeypatch):
    kfjob("master", "train")
    later = time.time_ns() + cache.LIFETIME_NANOSECONDS
    with monkeypatch.context() as patch:
        patch.setattr("kfjob.api.master.cache.time", SimpleNamespace(time_ns=lambda: later))
        requests.clear()
        assert kfjob("master", "train") == 0
        assert "logs" in requests
    requests.clear()
    state = fake.jobs["default", "train"]
    state.snapshot = replace(state.snapshot, uid="a later one")
    assert kfjob("master", "train") == 0
    assert "logs" in requests


def test_unconfirmed_master_is_not_cached(fake, kfjob, tmp_path):
    fake.play("train", *script.STARTING, *script.block(0, 1, 5), *script.block(1, 0, 5), spec=script.SPEC)
    assert kfjob("master", "train") == 0
    assert "likely" in kfjob.out
    assert not list((tmp_path / "state").rglob("*.json"))


def test_damaged_cache_file_is_ignored(fake, kfjob, requests, tmp_path):
    kfjob("master", "train")
    (file,) = (tmp_path / "state" / "cache" / "master").glob("*.json")
    content = json.loads(file.read_text())
    for text in ("", "{", "[]", json.dumps(content | {"master": {}})):
        file.write_text(text)
        assert kfjob("master", "train", "-o", "name") == 0
        assert kfjob.out == "pod/train-worker-1\n"


def test_all_shows_the_ranks_of_every_pod_in_every_round(fake, kfjob):
    second_round = [*script.block(0, 0, 100), *script.block(1, 1, 100), script.progress(0, 101, 5.0)]
    fake.play("train", *script.TRAINING, *second_round, spec=script.SPEC)
    assert kfjob("master", "train", "--all") == 0
    table = [line.split() for line in kfjob.out.splitlines()[:3]]
    assert table == [
        ["POD", "NODE", "STATUS", "11:06:45", "11:08:20"],
        ["*", "train-worker-0", "node-0", "Running", "1", "(1)", "0", "(0)"],
        ["train-worker-1", "node-1", "Running", "0", "(0)", "1", "(1)"],
    ]
    assert kfjob("master", "train", "--all", "-o", "json") == 0
    result = json.loads(kfjob.out)
    assert result["master"]["pod"] == "train-worker-0"
    ranks = [{member["pod"]: member["group_rank"] for member in item["members"]} for item in result["rounds"]]
    assert ranks == [{"train-worker-0": 1, "train-worker-1": 0}, {"train-worker-0": 0, "train-worker-1": 1}]


def test_watch_prints_every_handover(fake, kfjob, monkeypatch):
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
    assert kfjob.out.split() == ["pod/train-worker-1", "pod/train-worker-0"]
    steps = iter([lambda: fake.play("train", *script.SUCCEEDED, spec=script.SPEC)])
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    assert kfjob("master", "train", "--watch") == 0
    assert kfjob.out == "11:07:10  `train-worker-1` on node `node-1` (global rank 0) prints progress, confirmed\n"


@pytest.mark.parametrize("layout", ["{pod}.previous.log", "{pod}/pytorch.previous.log"])
def test_saved_logs_from_before_a_restart_are_evidence(kfjob, fake, tmp_path, layout):
    saved = tmp_path / "saved"
    for index in range(2):
        file = saved / layout.format(pod=f"train-worker-{index}")
        file.parent.mkdir(parents=True, exist_ok=True)
        before = [*script.block(index, 1 - index, 1), *([script.progress(1, 1, 8.0)] if index else [])]
        file.write_text("".join(f"{line.text}\n" for line in before))
        file.with_name(file.name.replace(".previous", "")).write_text("Traceback (most recent call last):\n")
    assert kfjob("master", "--from", str(saved)) == 0
    assert kfjob.out.startswith("`train-worker-1` (global rank 0) prints progress, confirmed\n")
    assert "from before the container of `train-worker-1` restarted" in kfjob.out
    assert kfjob("logs", "--from", str(saved), "--pod", "train-worker-1", "--previous", "--tail", "1") == 0
    assert "Batch 1 " in kfjob.out


def test_archive_of_a_restarted_pod_shows_its_last_container(kfjob, tmp_path):
    job = script.job(JobPhase.SUCCEEDED, ended=script.START + 60 * SECOND)
    pod = script.pod(0, PodPhase.SUCCEEDED, restarts=1)
    snapshot = JobSnapshot(name="train", namespace="default", job=job, pods=(pod,), uid="u", launch="l1")
    folder.write_snapshot(tmp_path, snapshot)
    log = folder.log_path(tmp_path, pod.pod)
    log.parent.mkdir()
    folder.previous_log_path(log).write_text(f"{script.progress(0, 4, 8.0).text}\n")
    log.write_text(f"{script.progress(0, 5, 7.0).text}\n{script.progress(0, 6, 6.0).text}\n")
    assert kfjob("status", "--from", str(tmp_path), "-o", "json") == 0
    progress = json.loads(kfjob.out)["progress"]
    assert (progress["step"], progress["loss"]) == (6, 6.0)


def test_ended_job_in_which_every_rank_prints_is_read_from_rank_0(kfjob, tmp_path):
    job = script.job(JobPhase.SUCCEEDED, ended=script.START + 60 * SECOND)
    pods = tuple(script.pod(index, PodPhase.SUCCEEDED) for index in range(2))
    snapshot = JobSnapshot(name="train", namespace="default", job=job, pods=pods, uid="u", launch="l1")
    folder.write_snapshot(tmp_path, snapshot)
    for index, pod in enumerate(pods):
        log = folder.log_path(tmp_path, pod.pod)
        log.parent.mkdir()
        lines = [*script.block(index, index, 1), *(script.progress(index, step, 8.0 + index) for step in range(1, 4))]
        log.write_text("".join(f"{line.text}\n" for line in lines))
    assert kfjob("status", "--from", str(tmp_path), "-o", "json") == 0
    status = json.loads(kfjob.out)
    assert (status["master"]["pod"], status["progress"]["pod"]) == ("train-worker-0", "train-worker-0")
    assert (status["progress"]["loss"], status["progress"]["lines"]) == (8.0, 3)


def test_wait_accepts_durations(kfjob, fake):
    fake.play("train", *script.TRAINING, spec=script.SPEC)
    for duration in ("5m", "0.01"):
        assert kfjob("master", "train", "--wait", duration, "-o", "name") == 0
    assert kfjob("master", "train", "--wait", "soon") == 2
    assert "is not a duration" in kfjob.err
