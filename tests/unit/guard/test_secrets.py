"""No secret of a job reaches what the guard writes into the cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from kfjob.api.settings import Settings
from kfjob.api.target import Target
from kfjob.guard import facts
from kfjob.guard.decision import decide
from kfjob.guard.notifications import Notifier
from kfjob.guard.supervision import Supervision
from kfjob.joblog.events import JobChanged, JobPhase, JobSnapshot
from kfjob.joblog.view.job_view import JobView

TOKEN, PASSWORD = "hf_" + "aB3" * 12, "correcthorsebattery"
SPEC = {"name": "train", "image": "i:1", "command": ["x"], "env": {"DB_PASSWORD": PASSWORD}}
ENDED = JobChanged(phase=JobPhase.FAILED)


def test_decision_holds_no_secret_of_the_spec_and_no_token_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    logs = SimpleNamespace(view=JobView(), diagnosis=SimpleNamespace(first_cause=None), history=None)
    monkeypatch.setattr(facts, "examine", lambda _: logs)
    monkeypatch.setattr(facts, "find_futile_restart", lambda _: True)
    monkeypatch.setattr(facts, "describe", lambda *_, **__: f"ValueError: login with token {TOKEN} and {PASSWORD}")
    record = JobSnapshot(name="train", namespace="n", job=ENDED, uid="u", job_kind="PyTorchJob", spec=json.dumps(SPEC))
    target = Target(Settings(state=tmp_path), "kubernetes", "n")
    watched = Supervision(target, record, Notifier({}, print), print)
    decision = decide(facts.collect_facts(watched._reader, record, JobView(job=ENDED)))
    assert "ValueError: login with token" in decision.reason
    assert TOKEN not in str(decision)
    assert PASSWORD not in str(decision)
