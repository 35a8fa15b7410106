"""Commands that archive one launch at the same time: one writes at a time, and none replaces more by less."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.reader import LiveReader, open_snapshot
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.archived_job import ArchivedJob
from kfjob.base.concurrency import Task
from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobChanged, JobPhase, JobSnapshot, LogLine, PodChanged, PodPhase
from tests.fakes.backend import FakeBackend

PODS = ("train-worker-0", "train-worker-1")


def script(pods: tuple[str, ...], lines: int) -> list[Event]:
    texts: list[Event] = [LogLine(pod=pod, text=f"step {index}", time=index) for pod in pods for index in range(1, lines + 1)]
    return [
        JobChanged(phase=JobPhase.RUNNING),
        *(PodChanged(pod=pod, phase=PodPhase.FAILED) for pod in pods),
        *texts,
    ]


def play(root: Path, *events: Event, launch: str = "l1") -> LiveReader:
    """Return the job of these events, whose archive is below `root`."""
    backend = FakeBackend()
    backend.play("train", *events, launch=launch)
    target = Target(Settings(state=root), "kubernetes", "default")
    reader = open_snapshot(target, backend.get("train", namespace="default"), is_new=True)
    reader.logs = partial(backend.logs, reader.ref)  # type: ignore[method-assign]
    reader.events = partial(backend.events, reader.ref)  # type: ignore[method-assign]
    return reader


def archive(root: Path, pods: tuple[str, ...], lines: int, *, launch: str = "l1") -> Path:
    reader = play(root, *script(pods, lines), launch=launch)
    with archive_job(reader, reader.snapshot()) as path:
        return path


@pytest.mark.parametrize("second", [(PODS[:1], 3), (PODS, 1), ((), 0)], ids=["a pod less", "shorter logs", "nothing"])
def test_an_archive_keeps_what_a_later_one_lacks(second, tmp_path):
    path = archive(tmp_path, PODS, 3)
    assert archive(tmp_path, *second) == path
    assert [pod.pod for pod in folder.read_snapshot(path).pods] == list(PODS)
    assert [folder.log_path(path, pod).read_bytes().count(b"\n") for pod in PODS] == [3, 3]
    assert not list(path.rglob("*.part"))


def test_a_later_archive_adds_what_is_new(tmp_path):
    path = archive(tmp_path, PODS[:1], 3)
    archive(tmp_path, PODS, 5)
    assert {pod.pod for pod in folder.read_snapshot(path).pods} == set(PODS)
    assert [folder.log_path(path, pod).read_bytes().count(b"\n") for pod in PODS] == [5, 5]


def test_launches_do_not_share_pods(tmp_path):
    archive(tmp_path, PODS, 3)
    assert [pod.pod for pod in folder.read_snapshot(archive(tmp_path, PODS[:1], 3, launch="l2")).pods] == [PODS[0]]


def test_a_second_archive_of_a_launch_waits_for_the_first(tmp_path):
    reader, begun = play(tmp_path, *script(PODS, 3)), threading.Event()
    snapshot = reader.snapshot()
    order = []

    def archive_again() -> None:
        begun.set()
        with archive_job(reader, snapshot):
            order.append("second")

    with archive_job(reader, snapshot):
        task = Task(archive_again, name="archive-again")
        assert begun.wait(30)
        task.join(timeout=0.2)  # time to do it wrong
        order.append("first")
    task.result(timeout=30)
    assert order == ["first", "second"]


def test_a_job_that_was_stopped_has_ended_when_its_archive_was_written(tmp_path):
    path = folder.make_private(tmp_path / "train")
    job = JobChanged(phase=JobPhase.RUNNING, created=5 * SECOND, time=65 * SECOND)
    folder.write_snapshot(path, JobSnapshot(name="train", namespace="default", job=job))
    read = ArchivedJob(path).snapshot().job
    assert (read.phase, read.created, read.ended) == (JobPhase.STOPPED, 5 * SECOND, 65 * SECOND)
