"""Notifications about decisions, received by a real server; a service that fails changes nothing and shows no address."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.guard import notifications, supervision
from kfjob.guard.decision import Action, Decision, Facts, Relaunch
from kfjob.guard.notifications import Notifier
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot
from kfjob.joblog.view.job_view import JobView
from tests.receiver import Receiver

pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")  # apprise imports all of its services
LOGIN = "me:swordfish"
ENDED = JobChanged(phase=JobPhase.FAILED)
JOB = JobSnapshot(name="train", namespace="team", job=ENDED, uid="u", launch="l1", job_kind="PyTorchJob")
REF = JobRef(backend="kubernetes", namespace="team", name="train", uid="u", job_kind="PyTorchJob")
RELAUNCH = Decision(
    action=Action.RELAUNCH,
    reason="pod `train-worker-1` was removed from the job",
    evidence=("train-worker-1: Killing: <stopped> & gone",),
    entry=Relaunch(launch="l1"),
)
STOP = Decision(action=Action.STOP, reason="`recovery.retries` allows 3")


def make_address(port: int, *, seconds: int = 5) -> str:
    return f"json://{LOGIN}@127.0.0.1:{port}/hook?cto={seconds}&rto={seconds}"


def test_each_decision_is_sent_once():
    with Receiver() as receiver:
        log: list[str] = []
        notifier = Notifier({"KFJOB_NOTIFY": f" {make_address(receiver.port)}\n"}, log.append)
        for decision in (RELAUNCH, RELAUNCH, STOP):  # a relaunch that is tried again is decided again
            notifier.send(REF, decision)
            notifier.join()
    first, second = receiver.received
    assert first["title"] == "relaunch of job train in namespace team"
    assert first["message"] == "\n".join([RELAUNCH.reason, *RELAUNCH.evidence])
    assert first["type"] == "warning"
    assert (second["title"], second["message"]) == ("stop of job train in namespace team", STOP.reason)
    assert second["type"] == "failure"
    assert log == []


def test_failed_and_invalid_addresses_are_named_by_number_and_the_others_still_get_it(capfd, caplog):
    caplog.set_level(logging.DEBUG)
    with Receiver() as receiver, Receiver(status=500) as broken:
        log: list[str] = []
        addresses = ["slack://swordfish", make_address(broken.port), make_address(1), make_address(receiver.port)]
        notifier = Notifier({"KFJOB_NOTIFY": " ".join(addresses)}, log.append)
        notifier.send(REF, RELAUNCH)
        notifier.join()
    assert len(receiver.received) == 1
    failures = [f"train: the notification to address {number} of KFJOB_NOTIFY failed" for number in (1, 2, 3)]
    assert sorted(log) == ["KFJOB_NOTIFY: address 1 is invalid", *failures]
    printed = capfd.readouterr()
    assert "swordfish" not in printed.out + printed.err + caplog.text + "".join(log)


def test_library_that_raises_is_a_failed_notification(monkeypatch, capfd):
    def fail(address: str) -> None:
        raise ValueError(f"cannot read {address}")

    log: list[str] = []
    notifier = Notifier({"KFJOB_NOTIFY": make_address(1)}, log.append)
    notifier.join()
    monkeypatch.setattr(notifications, "_open", fail)
    notifier.send(REF, STOP)
    notifier.join()
    assert log == ["train: the notification to address 1 of KFJOB_NOTIFY failed"]
    assert "swordfish" not in capfd.readouterr().err


def test_missing_library_is_reported_once_and_only_if_addresses_are_set(monkeypatch):
    monkeypatch.setattr(notifications, "find_spec", lambda _: None)
    log: list[str] = []
    notifier = Notifier({"KFJOB_NOTIFY": make_address(1)}, log.append)
    notifier.send(REF, RELAUNCH)
    Notifier({}, log.append).send(REF, RELAUNCH)
    (line,) = log
    assert '`pip install "kfjob[guard]"`' in line
    assert "swordfish" not in line


def test_service_that_does_not_answer_delays_no_relaunch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    class Recorder:
        def write_decision(self, *_: Any) -> None:
            calls.append("write")

        def relaunch(self, *_: Any, **__: Any) -> None:
            calls.append("relaunch")

        def remember(self, *_: Any) -> None:
            calls.append("remember")

    monkeypatch.setattr(supervision, "collect_facts", lambda *_, **__: Facts(phase=JobPhase.FAILED))
    monkeypatch.setattr(supervision, "decide", lambda _: RELAUNCH)
    monkeypatch.setattr(supervision, "Actions", lambda *_: Recorder())
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts and never answers
        log: list[str] = []
        notifier = Notifier({"KFJOB_NOTIFY": make_address(silent.getsockname()[1], seconds=300)}, log.append)
        notifier.join()  # apprise is loaded
        target = Target(Settings(state=tmp_path), "kubernetes", "team")
        watched = supervision.Supervision(target, JOB, notifier, log.append)
        assert watched._act(JobView(), None)
        assert calls == ["write", "relaunch"]
        assert [line for line in log if "failed" in line] == []  # the sender still waits
    notifier.join()  # the service has ended
    assert log[-1] == "train: the notification to address 1 of KFJOB_NOTIFY failed"
    assert "swordfish" not in "".join(log)
