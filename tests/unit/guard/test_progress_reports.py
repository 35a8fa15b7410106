"""When the guard writes the progress of a log into the status of a job, and what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.errors import Forbidden
from kfjob.base.units import SECOND
from kfjob.guard import progress_reports
from kfjob.guard.progress_reports import ProgressReports
from kfjob.joblog.events import JobChanged, JobPhase, LogLine, ReportedProgress, Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.kinds.registry import find_kind
from tests.fakes.backend import FakeBackend

LINES = tuple(f"2026-11-21 07:10:{step} step {step}/200 loss: {4 - step / 20}" for step in (10, 20, 30))
OWN = {"step": "30", "loss": "2.5", "source": "kfjob-guard"}
NONE = JobView(job=JobChanged(phase=JobPhase.RUNNING))


def read(*lines: str, reported: ReportedProgress | None = None, phase: JobPhase = JobPhase.RUNNING) -> JobView:
    events = [LogLine(pod="train-node-0-0", text=line, time=(10 * index) * SECOND) for index, line in enumerate(lines, 1)]
    now = Tick(time=(10 * len(lines)) * SECOND)
    return reduce_all(JobView(), [JobChanged(phase=phase, reported=reported), *events, now])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    cluster = FakeBackend()
    monkeypatch.setattr(Target, "cluster", cluster)
    monkeypatch.setattr(progress_reports, "PERIOD_SECONDS", 0.0)
    return cluster


def written(cluster: FakeBackend) -> list[ReportedProgress]:
    return [item["status"] for item in cluster.objects]


def make_reports(tmp_path: Path, said: list[str], kind: str = "TrainJob") -> ProgressReports:
    ref = JobRef(backend="kubernetes", namespace="n", name="train", uid="u", launch="l", job_kind=kind)
    return ProgressReports(Target(Settings(state=tmp_path), "kubernetes", "n"), ref, said.append)


def test_progress_of_the_log_is_written_when_it_has_changed(cluster: FakeBackend, tmp_path: Path):
    reports = make_reports(tmp_path, [])
    for view in (NONE, read(*LINES[:2]), read(*LINES), read(*LINES)):
        reports.write(view)
    assert [report.percent for report in written(cluster)] == [10, 15]
    assert written(cluster)[-1].metrics == OWN
    assert written(cluster)[-1].remaining_seconds == 170


def test_end_of_a_job_is_written_at_once(cluster: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress_reports, "PERIOD_SECONDS", 1000.0)
    reports = make_reports(tmp_path, [])
    for view in (read(*LINES[:2]), read(*LINES), read(*LINES, phase=JobPhase.SUCCEEDED)):
        reports.write(view)
    assert [report.percent for report in written(cluster)] == [10, 15]


def test_view_of_the_past_and_total_of_one_epoch_are_not_written(cluster: FakeBackend, tmp_path: Path):
    make_reports(tmp_path, []).write(replace(read(*LINES), is_current=False))
    assert written(cluster) == []
    make_reports(tmp_path, []).write(read(*(f"Epoch 1 Step [{step}/100] loss: {4 - step / 20}" for step in (10, 20, 30))))
    assert [report.percent for report in written(cluster)] == [None]


def test_program_that_posts_its_progress_is_left_alone(cluster: FakeBackend, tmp_path: Path):
    reports = make_reports(tmp_path, [])
    reports.write(read(*LINES, reported=ReportedProgress(percent=7, metrics={"loss": "2.4"})))
    reports.write(read(*LINES))
    assert written(cluster) == []


def test_report_of_an_earlier_guard_is_replaced(cluster: FakeBackend, tmp_path: Path):
    make_reports(tmp_path, []).write(read(*LINES, reported=ReportedProgress(metrics=OWN)))
    assert len(written(cluster)) == 1


def test_refusal_is_said_once(cluster: FakeBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise Forbidden("you are not allowed to patch trainjobs/status")

    said: list[str] = []
    reports = make_reports(tmp_path, said)
    monkeypatch.setattr(cluster, "write_progress", refuse)
    reports.write(read(*LINES))
    reports.write(read(*LINES))
    assert said == ["train: the status does not show its progress: you are not allowed to patch trainjobs/status"]


def test_kind_without_a_place_for_progress_gets_none(cluster: FakeBackend, tmp_path: Path):
    make_reports(tmp_path, [], kind="PyTorchJob").write(read(*LINES))
    assert written(cluster) == []


def test_fields_of_a_trainjob_are_those_that_are_read_again():
    kind = find_kind("TrainJob")
    report = ReportedProgress(percent=10, remaining_seconds=180, metrics=OWN, time=1795245050 * SECOND)
    job: dict[str, Any] = {"metadata": {"name": "train"}, "status": kind.format_progress(report)}
    assert kind.read_state(job, now=0).reported == report
    partly = replace(report, percent=None, remaining_seconds=None)
    assert kind.read_state({**job, "status": kind.format_progress(partly)}, now=0).reported == partly
