"""Archives of a launch: one command writes at a time and replaces nothing by less; a guard writes while the job runs."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import pytest

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.lifecycle.running_archive import RunningArchive
from kfjob.api.reader import LiveReader, open_snapshot
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.archived_job import ArchivedJob
from kfjob.base.concurrency import Task
from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobChanged, JobPhase, JobSnapshot, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
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


POD, PASSWORD = "train-worker-0", "correcthorsebattery"
SPEC = json.dumps({"name": "train", "image": "i:1", "command": ["x"], "env": {"DB_PASSWORD": PASSWORD}})
RUNNING = JobChanged(phase=JobPhase.RUNNING)
JOB = JobSnapshot(name="train", namespace="n", job=RUNNING, uid="u", launch="l1", job_kind="PyTorchJob", spec=SPEC)
STATE = PodChanged(pod=POD, phase=PodPhase.RUNNING, message=f"with {PASSWORD}")


def line(number: int, text: str = "", container: str = "c1") -> LogLine:
    return LogLine(pod=POD, text=text or f"step {number}", time=number, container_id=container)


def write_events(root: Path, *events: Event) -> list[str]:
    """Write the events with an archive of their own; return what it says."""
    said: list[str] = []
    archive, view = RunningArchive(JOB, root, notify=said.append), JobView(config=ObserveConfig(workers=(POD,)))
    for event in events:
        view = reduce(view, event)
        archive.add(view, event)
    archive.close()
    return said


def read_log(root: Path, *, previous: bool = False) -> list[str]:
    log = folder.log_path(root / "n" / "train" / "l1", POD, previous=previous)
    return [text.partition("Z ")[2] for text in log.read_text().splitlines()]


def test_lines_and_state_are_written_without_secrets(tmp_path: Path):
    assert write_events(tmp_path, RUNNING, STATE, line(1), line(2, f"login with {PASSWORD}")) == []
    assert read_log(tmp_path) == ["step 1", "login with [redacted]"]
    snapshot = folder.read_snapshot(tmp_path / "n" / "train" / "l1")
    assert (snapshot.uid, [pod.pod for pod in snapshot.pods]) == ("u", [POD])
    assert PASSWORD not in snapshot.pods[0].message


def test_guard_that_reads_a_log_again_appends_only_what_is_new(tmp_path: Path):
    write_events(tmp_path, line(1), line(2))
    write_events(tmp_path, line(1), line(2), line(3))
    assert read_log(tmp_path) == ["step 1", "step 2", "step 3"]


def test_flush_leaves_nothing_that_a_later_write_could_repeat(tmp_path: Path):
    archive = RunningArchive(JOB, tmp_path, notify=print)
    archive.add(JobView(), line(1))  # the first line is written at once
    archive.add(JobView(), line(2))
    assert read_log(tmp_path) == ["step 1"]
    archive.flush()
    assert read_log(tmp_path) == ["step 1", "step 2"]
    archive.close()


def test_log_of_a_container_before_its_restart_is_kept(tmp_path: Path):
    write_events(tmp_path, line(1), line(2), line(3, container="c2"))
    assert read_log(tmp_path, previous=True) == ["step 1", "step 2"]
    assert read_log(tmp_path) == ["step 3"]


def test_folder_that_cannot_be_written_is_said_once(tmp_path: Path):
    (tmp_path / "n").write_text("a file")
    (said,) = write_events(tmp_path, line(1), line(2))
    assert said.startswith("train: its logs are not archived while it runs: ")
