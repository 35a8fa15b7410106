"""`kfjob list`: progress, duration and submitter of each job, in the width of the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kfjob.api.overview import MAX_PODS
from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import Forbidden
from kfjob.base.units import SECOND
from kfjob.cli.formatting import format_table
from kfjob.joblog.events import JobPhase, LogGap, LogLine, PodPhase
from tests.fakes.backend import FakeBackend
from tests.unit.api import script
from tests.unit.api.conftest import Shell, fake, kfjob

__all__ = ["fake", "kfjob"]


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: script.START + 90 * SECOND)


def read_rows(shell: Shell, *argv: str) -> list[list[str]]:
    assert shell("list", *argv) == 0
    return [line.split() for line in shell.out.splitlines()]


def test_a_row_shows_step_loss_duration_and_submitter(fake: FakeBackend, kfjob: Shell):
    fake.play("train", *script.TRAINING, spec=script.SPEC, submitted_by="ann@laptop")
    assert read_rows(kfjob)[1] == ["train", "Running", "20", "6.0000", "1m29s", "ann@laptop"]


def test_all_namespaces_are_listed_with_their_names(fake: FakeBackend, kfjob: Shell):
    for namespace in ("blue", "green"):
        fake.play("train", *script.TRAINING, namespace=namespace, launch=namespace)
    rows = read_rows(kfjob, "-A")
    assert [row[:2] for row in rows] == [["NAMESPACE", "NAME"], ["blue", "train"], ["green", "train"]]
    assert {row[3] for row in rows[1:]} == {"20"}


def test_logs_that_may_not_be_read_leave_dashes(fake: FakeBackend, kfjob: Shell, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_args: object, **_fields: object) -> None:
        raise Forbidden("not allowed to get pods/log")

    monkeypatch.setattr(FakeBackend, "logs", refuse)
    fake.play("train", *script.TRAINING)
    assert read_rows(kfjob)[1][2:4] == ["-", "-"]


def test_json_has_the_names_of_status(fake: FakeBackend, kfjob: Shell):
    fake.play("train", *script.TRAINING, spec=script.SPEC, submitted_by="ann@laptop")
    kfjob("list", "-o", "json")
    (job,) = json.loads(kfjob.out)
    kfjob("status", "train", "-o", "json")
    status = json.loads(kfjob.out)
    assert {
        name: status[name] for name in ("name", "namespace", "backend", "launch", "uid", "phase", "created", "started")
    }.items() <= job.items()
    assert job["progress"].items() <= status["progress"].items()
    assert "first_loss" not in job["progress"], "the last lines do not show it"
    assert (job["progress"]["step"], job["progress"]["loss"], job["submitted_by"]) == (20, 6.0, "ann@laptop")


def test_few_logs_of_a_large_job_are_read(fake: FakeBackend, kfjob: Shell, monkeypatch: pytest.MonkeyPatch):
    pods = [script.pod(index, PodPhase.RUNNING) for index in range(50)]
    fake.play("train", script.job(JobPhase.RUNNING), *pods, *(script.line(index, "loading", 1) for index in range(50)))
    calls: list[str] = []
    read = FakeBackend.logs

    def count(backend: FakeBackend, ref: JobRef, pod: str, log_range: LogRange, **fields: Any) -> Iterator[LogLine | LogGap]:
        calls.append(pod)
        return read(backend, ref, pod, log_range, **fields)

    monkeypatch.setattr(FakeBackend, "logs", count)
    assert read_rows(kfjob)[1][2] == "-"
    assert len(calls) <= MAX_PODS + 1


def test_a_cell_that_is_too_wide_ends_in_an_ellipsis():
    row = ("a" * 63, "Running", "maria.fernandez@login-node-17.cluster.example")
    wide = format_table(("NAME", "STATE", "BY"), [row], width=80, flexible=("BY", "NAME")).splitlines()[1]
    assert len(wide) == 80
    narrow = format_table(("NAME", "STATE", "BY"), [row], width=60, flexible=("BY", "NAME")).splitlines()[1]
    assert len(narrow) == 60
    assert narrow.split() == ["a" * 34 + "…", "Running", "maria.ferna…"]
    assert format_table(("NAME", "STATE", "BY"), [row], flexible=("BY", "NAME")).splitlines()[1].split() == list(row)
