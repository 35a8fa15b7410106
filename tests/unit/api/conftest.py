from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.errors import KfjobError
from kfjob.cli.commands import run
from kfjob.joblog.events import Event
from kfjob.joblog.observe_config import encode
from kfjob.local.backend import LocalBackend
from kfjob.plan import Context, JobPlan, resolve
from kfjob.source.spec_text import load_spec
from tests.fakes.backend import FakeBackend


class RecordingBackend(FakeBackend):
    """A scripted backend whose jobs carry what a submit records of their specs."""

    def play(self, name: str, *events: Event, **fields: Any) -> JobRef:
        """Add a job whose events are `events`."""
        ref = super().play(name, *events, **fields)
        job = self.jobs[ref.namespace, name]
        if job.snapshot.spec:
            job.snapshot = replace(job.snapshot, observe_config=_plan_observation(job.snapshot.spec, name))
        return ref


@cache
def _plan_observation(spec: str, name: str) -> str | None:
    """Return the record; None for a spec that is not valid, or that of another job, whose pods have other names."""
    with suppress(KfjobError):
        loaded = load_spec(spec).spec
        if loaded.name != name:
            return None
        image = {} if loaded.image else {"image": "unknown"}
        return encode(resolve(loaded.model_copy(update=image), Context(backend="kubernetes", launch="l1")).observe_config)
    return None


@pytest.fixture
def fake(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """Return a scripted backend that replaces the cluster; the settings are empty."""
    backend = RecordingBackend()
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
