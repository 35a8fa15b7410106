"""The archive that a guard writes while a job runs."""

from __future__ import annotations

import json
from pathlib import Path

from kfjob.api.lifecycle.running_archive import RunningArchive
from kfjob.backends import folder
from kfjob.joblog.events import Event, JobChanged, JobPhase, JobSnapshot, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce

POD, PASSWORD = "train-worker-0", "correcthorsebattery"
SPEC = json.dumps({"name": "train", "image": "i:1", "command": ["x"], "env": {"DB_PASSWORD": PASSWORD}})
RUNNING = JobChanged(phase=JobPhase.RUNNING)
JOB = JobSnapshot(name="train", namespace="n", job=RUNNING, uid="u", launch="l1", job_kind="PyTorchJob", spec=SPEC)
STATE = PodChanged(pod=POD, phase=PodPhase.RUNNING, message=f"with {PASSWORD}")


def line(number: int, text: str = "", container: str = "c1") -> LogLine:
    return LogLine(pod=POD, text=text or f"step {number}", time=number, container_id=container)


def write(root: Path, *events: Event) -> list[str]:
    """Write the events with an archive of their own; return what it says."""
    said: list[str] = []
    archive, view = RunningArchive(JOB, root, notify=said.append), JobView(config=ObserveConfig(workers=(POD,)))
    for event in events:
        view = reduce(view, event)
        archive.add(view, event)
    archive.close()
    return said


def read(root: Path, *, previous: bool = False) -> list[str]:
    log = folder.log_path(root / "n" / "train" / "l1", POD, previous=previous)
    return [text.partition("Z ")[2] for text in log.read_text().splitlines()]


def test_lines_and_state_are_written_without_secrets(tmp_path: Path):
    assert write(tmp_path, RUNNING, STATE, line(1), line(2, f"login with {PASSWORD}")) == []
    assert read(tmp_path) == ["step 1", "login with [redacted]"]
    snapshot = folder.read_snapshot(tmp_path / "n" / "train" / "l1")
    assert (snapshot.uid, [pod.pod for pod in snapshot.pods]) == ("u", [POD])
    assert PASSWORD not in snapshot.pods[0].message


def test_guard_that_reads_a_log_again_appends_only_what_is_new(tmp_path: Path):
    write(tmp_path, line(1), line(2))
    write(tmp_path, line(1), line(2), line(3))
    assert read(tmp_path) == ["step 1", "step 2", "step 3"]


def test_flush_leaves_nothing_that_a_later_write_could_repeat(tmp_path: Path):
    archive = RunningArchive(JOB, tmp_path, notify=print)
    archive.add(JobView(), line(1))  # the first line is written at once
    archive.add(JobView(), line(2))
    assert read(tmp_path) == ["step 1"]
    archive.flush()
    assert read(tmp_path) == ["step 1", "step 2"]
    archive.close()


def test_log_of_a_container_before_its_restart_is_kept(tmp_path: Path):
    write(tmp_path, line(1), line(2), line(3, container="c2"))
    assert read(tmp_path, previous=True) == ["step 1", "step 2"]
    assert read(tmp_path) == ["step 3"]


def test_folder_that_cannot_be_written_is_said_once(tmp_path: Path):
    (tmp_path / "n").write_text("a file")
    (said,) = write(tmp_path, line(1), line(2))
    assert said.startswith("train: its logs are not archived while it runs: ")
