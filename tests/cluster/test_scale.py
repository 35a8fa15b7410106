"""What is done with many pods, with few: benchmarks/scale.py has the larger numbers, and the times."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.api.logs.follow import follow_logs
from kfjob.api.logs.merge import read_logs
from kfjob.api.logs.selection import PodSelection
from kfjob.api.master.discover import discover_master
from kfjob.api.reader import LiveReader
from kfjob.api.recorded_config import read_observe_config
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef, LogRange
from kfjob.cluster.backend import KubernetesBackend
from kfjob.joblog.events import LogGap, LogLine, PodChanged
from kfjob.joblog.master.evidence import Confidence
from tests.cluster.facts import PATIENCE, Space
from tests.cluster.kwok import Kwok, append, kwok, training

PODS, PRINTER = 16, 11


@pytest.fixture(scope="module")
def many(space: Space, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kwok, JobRef]]:
    with kwok(space, tmp_path_factory.mktemp("kwok"), [("many", PODS)]) as fake:
        yield fake, fake.job("many", PODS, training("many", PODS, printer=PRINTER))


class CountingReader(LiveReader):
    """Reads logs, and records the pods."""

    pods_read: set[str]

    def logs(self, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None) -> Iterator[LogLine | LogGap]:
        self.pods_read.add(pod)
        return super().logs(pod, log_range, pod_state=pod_state)


def open_reader(backend: KubernetesBackend, ref: JobRef, folder: Path) -> CountingReader:
    target = Target(Settings(backend="kubernetes", state=folder), "kubernetes", ref.namespace)
    target.__dict__["cluster"] = backend
    config = read_observe_config(backend.get(ref.name, namespace=ref.namespace))
    reader = CountingReader(target, ref, config, secrets=frozenset())
    reader.pods_read = set()
    return reader


def test_two_logs_of_many_are_enough_to_find_the_master(many, backend: KubernetesBackend, tmp_path: Path):
    _, ref = many
    reader = open_reader(backend, ref, tmp_path)
    master = discover_master(reader).master
    assert (master.pod, master.confidence, master.group_rank) == (f"many-worker-{PRINTER}", Confidence.CONFIRMED, 0)
    assert len(reader.pods_read) == 2


def test_pods_are_chosen_by_rank(many, backend: KubernetesBackend, tmp_path: Path):
    _, ref = many
    lines = read_logs(open_reader(backend, ref, tmp_path), PodSelection(ranks=((0, 1), (-1, -1))), LogRange(tail=1))
    owners = {f"many-worker-{(rank + PRINTER) % PODS}" for rank in (0, 1, PODS - 1)}
    assert {line.pod for line in lines} == owners


def test_no_line_of_many_followed_pods_is_lost(many, backend: KubernetesBackend, tmp_path: Path):
    fake, ref = many
    seen: dict[str, list[str]] = {f"many-worker-{index}": [] for index in range(PODS)}
    reading = follow_logs(open_reader(backend, ref, tmp_path), PodSelection(), LogRange(follow=True, since=time.time_ns()))

    def read() -> None:
        for line in reading:
            if isinstance(line, LogLine) and line.text.startswith("new "):
                seen[line.pod].append(line.text)

    threading.Thread(target=read, daemon=True).start()
    pause = threading.Event()
    expected = []
    for batch in range(20):
        texts = [f"new {batch}.{number}" for number in range(10)]
        expected += texts
        for pod in seen:
            append(fake.log(pod), [(time.time_ns(), text) for text in texts])
        pause.wait(0.05)  # lines come bit by bit
    deadline = time.monotonic() + PATIENCE
    while any(len(texts) < len(expected) for texts in seen.values()):
        assert time.monotonic() < deadline, {pod: len(texts) for pod, texts in seen.items()}
        pause.wait(0.1)
    assert all(texts == expected for texts in seen.values())
