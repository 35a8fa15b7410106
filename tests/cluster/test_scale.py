"""Discovery, selection and following with 16 pods; benchmarks/scale.py measures more pods."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.api import observe_config
from kfjob.api.logs import read as logs
from kfjob.api.logs.selection import PodSelection
from kfjob.api.master import discover
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.kubernetes.backend import KubernetesBackend
from kfjob.events import LogGap, LogLine
from kfjob.observe.master import Confidence, Master
from tests.cluster.facts import PATIENCE, Space
from tests.cluster.kwok import Kwok, append, kwok, training

PODS, PRINTER = 16, 11


@pytest.fixture(scope="module")
def many(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kwok, JobRef]]:
    with kwok(space, tmp_path_factory.mktemp("kwok"), [("many", PODS)]) as cluster:
        yield cluster, cluster.job("many", PODS, training("many", PODS, printer=PRINTER))


class RecordingReader:
    """A reader that records whose logs it reads."""

    def __init__(self, backend: KubernetesBackend) -> None:
        self._backend = backend
        self.read: list[str] = []

    def logs(self, ref: JobRef, pod: str, log_range: LogRange) -> Iterator[LogLine | LogGap]:
        self.read.append(pod)
        return self._backend.logs(ref, pod, log_range)

    def events(self, ref: JobRef) -> list[object]:  # noqa: ARG002 - Reader's signature
        return []


def run_of(backend: KubernetesBackend, ref: JobRef, folder: Path) -> Run:
    target = Target(Settings(backend="kubernetes", state=folder), "kubernetes", ref.namespace)
    target.__dict__["backend"] = backend
    return Run(target, ref, observe_config.of_snapshot(backend.get(ref.name, namespace=ref.namespace)))


def test_two_logs_are_enough_to_find_the_master(many, backend: KubernetesBackend):
    _, ref = many
    snapshot = backend.get(ref.name, namespace=ref.namespace)
    reader = RecordingReader(backend)
    answer = discover.find(reader, ref, snapshot, observe_config.of_snapshot(snapshot)).master  # type: ignore[arg-type]
    assert isinstance(answer, Master)
    assert (answer.pod, answer.confidence, answer.group_rank) == (f"many-worker-{PRINTER}", Confidence.CONFIRMED, 0)
    assert len(set(reader.read)) == 2


def test_pods_are_selected_by_rank(many, backend: KubernetesBackend, tmp_path: Path):
    _, ref = many
    lines = logs.read(run_of(backend, ref, tmp_path), PodSelection(ranks=((0, 1), (-1, -1))), LogRange(tail=1))
    owners = {f"many-worker-{(rank + PRINTER) % PODS}" for rank in (0, 1, PODS - 1)}
    assert {line.pod for line in lines} == owners


def test_follow_of_many_pods_loses_no_line(many, backend: KubernetesBackend, tmp_path: Path):
    cluster, ref = many
    received: dict[str, list[str]] = {f"many-worker-{index}": [] for index in range(PODS)}
    stream = logs.follow(run_of(backend, ref, tmp_path), PodSelection(), LogRange(follow=True, since=time.time_ns()))

    def read() -> None:
        for line in stream:
            if isinstance(line, LogLine) and line.text.startswith("new "):
                received[line.pod].append(line.text)

    threading.Thread(target=read, daemon=True).start()
    pause = threading.Event()
    expected = []
    for batch in range(20):
        texts = [f"new {batch}.{number}" for number in range(10)]
        expected += texts
        for pod in received:
            append(cluster.log(pod), [(time.time_ns(), text) for text in texts])
        pause.wait(0.05)  # lines arrive in small batches
    deadline = time.monotonic() + PATIENCE
    while any(len(texts) < len(expected) for texts in received.values()):
        assert time.monotonic() < deadline, {pod: len(texts) for pod, texts in received.items()}
        pause.wait(0.1)
    assert all(texts == expected for texts in received.values())
