from __future__ import annotations

from pathlib import Path

import pytest

from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.backends.fake import FakeBackend
from kfjob.cli.commands import run
from kfjob.local.backend import LocalBackend
from kfjob.plan import JobPlan


@pytest.fixture
def fake(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Return a scripted backend that replaces the cluster; the settings are empty."""
    backend = FakeBackend()
    monkeypatch.setattr(Target, "_open_cluster", lambda _target: backend)
    return backend


@pytest.fixture
def on_machine(fake: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Return the scripted backend in place of the local one."""
    monkeypatch.setattr(FakeBackend, "name", "local")
    monkeypatch.setattr(Target, "backend", fake)

    def submit(_machine: LocalBackend, plan: JobPlan) -> JobRef:
        fake.calls.append(("submit", plan.name))
        return fake.play(
            plan.name,
            namespace=plan.namespace,
            spec=plan.spec_json,
            launch=plan.launch,
            submitted_by=plan.submitted_by,
            spec_file=plan.spec_file,
            start_folder=plan.start_folder,
        )

    monkeypatch.setattr(LocalBackend, "submit", submit)
    return fake


class Shell:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *argv: str) -> int:
        code = run(list(argv))
        self.out, self.err = self._capsys.readouterr()
        assert "Traceback" not in self.err
        return code


@pytest.fixture
def kfjob(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)
