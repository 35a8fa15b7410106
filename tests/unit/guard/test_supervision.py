"""What the guard does if the next launch is refused, and if the API server does not answer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.base.errors import BackendError, Refused
from kfjob.guard import actions, supervision
from kfjob.guard.decision import Action, Decision, Relaunch
from kfjob.guard.notifications import Notifier
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot
from kfjob.joblog.view.job_view import JobView

ENDED = JobChanged(phase=JobPhase.FAILED)
JOB = JobSnapshot(name="train", namespace="n", job=ENDED, uid="u", launch="l1", job_kind="PyTorchJob")
DECISION = Decision(action=Action.RELAUNCH, reason="a pod was removed", entry=Relaunch(launch="l1", reason="pod lost", step=3))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what the supervision asks for, instead of a cluster that does it."""
    calls: list[Any] = []
    monkeypatch.setattr(actions, "write_event", lambda *_, **__: None)
    monkeypatch.setattr(supervision.Supervision, "_stop", lambda _, __, decision, **more: calls.append((decision.reason, more)))
    monkeypatch.setattr(actions, "read_live", lambda *_: JOB)
    monkeypatch.setattr(actions, "begin", lambda *_: calls.append("begin"))
    monkeypatch.setattr("kfjob.guard.relaunch.time.sleep", lambda _: calls.append("pause"))
    return calls


def supervise(tmp_path: Path, job: JobSnapshot = JOB) -> supervision.Supervision:
    target = Target(Settings(state=tmp_path), "kubernetes", "n")
    return supervision.Supervision(target, job, Notifier({}, print), print)


def relaunch(tmp_path: Path) -> None:
    supervise(tmp_path)._relaunch(JobView(), DECISION, "[]")


def test_refused_launch_gives_the_job_up(calls, tmp_path, monkeypatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise Refused("the API server refuses it", cause="no such field")

    monkeypatch.setattr(actions, "prepare", refuse)
    relaunch(tmp_path)
    assert calls == [("the next launch is refused: the API server refuses it", {})]


def test_server_that_does_not_answer_leaves_the_job_for_the_next_attempt(calls, tmp_path, monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise BackendError("the webhook is down")

    monkeypatch.setattr(actions, "prepare", fail)
    with pytest.raises(BackendError):
        relaunch(tmp_path)
    assert calls == []


def test_relaunch_that_has_begun_is_completed_when_the_server_answers_again(calls, tmp_path, monkeypatch):
    answers = [Refused("quota"), BackendError("503"), None]

    def complete(*_: Any) -> str:
        if error := answers.pop(0):
            raise error
        return "l2"

    monkeypatch.setattr(actions, "prepare", lambda *_, **__: None)
    monkeypatch.setattr(actions, "complete", complete)
    relaunch(tmp_path)
    assert calls == ["begin", "pause", "pause"]
    assert answers == []


def test_view_has_the_relaunches_before_the_launch(tmp_path):
    job = replace(JOB, relaunches='[{"launch": "l0"}]')
    assert supervise(tmp_path, job).view.relaunches == job.relaunches


def note(calls: list[str], _: LiveReader) -> str:
    calls.append("free")
    return ""


def test_decision_is_written_before_pods_are_freed(tmp_path, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(supervision, "free_survivors", partial(note, calls))
    monkeypatch.setattr(supervision.Supervision, "_complete_archive", lambda _: calls.append("archive"))
    monkeypatch.setattr(actions.Actions, "remember", lambda *_: calls.append("remember"))
    supervise(tmp_path)._stop(JobView(job=ENDED), DECISION)
    assert calls == ["remember", "free", "archive"]


def test_launch_that_was_given_up_is_not_decided_again(tmp_path, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(supervision, "free_survivors", partial(note, calls))
    monkeypatch.setattr(supervision.Supervision, "_complete_archive", lambda _: calls.append("archive"))
    monkeypatch.setattr(supervision.Supervision, "_follow", lambda _: calls.append("follow"))
    given_up = replace(JOB, guard_decision="the same failure twice")
    monkeypatch.setattr(LiveReader, "snapshot", lambda _: given_up)
    supervise(tmp_path).run()
    assert calls == ["free", "archive"]
