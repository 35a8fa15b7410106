from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.backends.base import JobRef, LogRange
from kfjob.base.errors import NotFound
from kfjob.joblog.events import JobSnapshot, LogLine
from kfjob.local import processes
from kfjob.local.backend import LocalBackend
from kfjob.local.identity import read_identity
from kfjob.local.launch_spec import IDENTITY
from kfjob.plan import Context, JobPlan, resolve
from kfjob.spec.job import JobSpec
from tests.local.machine import wait_until

PATIENCE = 60.0
TORCHRUN = ("torchrun", "--start-method=fork", "--run-path")
"""An agent that forks its ranks, so that torch is imported once; for tests that are not about the start of a rank."""
NAMESPACE = "default"
SUBMIT = """
import json, sys
from pathlib import Path
from kfjob.local.backend import LocalBackend
from kfjob.plan import Context, resolve
from kfjob.spec.job import JobSpec

context = Context(backend="local", launch="l1", start_folder=str(Path.cwd()))
plan = resolve(JobSpec.model_validate(json.loads(sys.argv[2])), context)
print(LocalBackend(state=Path(sys.argv[1])).submit(plan).uid, flush=True)
"""
"""A program that submits a job; its arguments are the state folder and the spec."""


@dataclass
class Here:
    """A state folder of this test alone, and what its jobs are asked."""

    state: Path
    backend: LocalBackend
    launches: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def plan(self, code: str | None = None, *, grace: float | None = None, name: str = "job", **spec: Any) -> JobPlan:
        """`code` is what every agent runs, as `python -c`."""
        if code is not None:
            spec["command"] = [sys.executable, "-c", code]
        context = Context(backend="local", launch=f"l{next(self.launches)}", namespace=NAMESPACE, start_folder=str(Path.cwd()))
        plan = resolve(JobSpec.model_validate({"name": name, **spec}), context)
        return plan if grace is None else replace(plan, grace_seconds=grace)

    def submit(self, code: str | None = None, **spec: Any) -> JobRef:
        return self.backend.submit(self.plan(code, **spec))

    def get(self, ref: JobRef) -> JobSnapshot:
        return self.backend.get(ref.name, namespace=ref.namespace)

    def end(self, ref: JobRef) -> JobSnapshot:
        self.until(lambda: self.get(ref).job.phase.ended)
        return self.get(ref)

    def texts(self, ref: JobRef, index: int = 0, **wanted: Any) -> list[str]:
        with suppress(NotFound):  # the pod has not started
            lines = self.backend.logs(ref, f"{ref.name}-worker-{index}", LogRange(**wanted))
            return [line.text for line in lines if isinstance(line, LogLine)]
        return []

    def until(self, condition: Callable[[], object]) -> None:
        wait_until(condition, patience=PATIENCE, pause=0.02)

    def until_says(self, ref: JobRef, text: str, *, index: int = 0) -> None:
        self.until(lambda: text in self.texts(ref, index))

    def launch(self, ref: JobRef) -> Path:
        return self.state / "local" / ref.namespace / ref.name / ref.launch

    def archived(self, ref: JobRef) -> Path:
        return self.state / "archive" / ref.namespace / ref.name / ref.launch

    def archived_log(self, ref: JobRef, index: int = 0) -> str:
        return folder.log_path(self.archived(ref), f"{ref.name}-worker-{index}").read_text()

    def supervisor(self, ref: JobRef) -> int:
        identity = read_identity(self.launch(ref) / folder.RUN / IDENTITY)
        assert identity is not None
        return identity.pid

    def kill_supervisor(self, ref: JobRef, *, with_reaper: bool = False) -> None:
        supervisor = self.supervisor(ref)
        reaper = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
        for number in (signal.SIGSTOP, signal.SIGKILL):  # neither is to see the other go
            for pid in (supervisor, reaper) if with_reaper else (supervisor,):
                os.kill(pid, number)

    def end_all(self) -> None:
        for job in self.backend.list(namespace=NAMESPACE):
            ref = JobRef(backend="local", namespace=NAMESPACE, name=job.name, uid=job.uid, launch=job.launch)
            processes.kill([], f"{ref.uid}/")
            self.backend.stop(ref, timeout=PATIENCE)

    def alive(self, ref: JobRef) -> list[int]:
        return processes.find_marked(f"{ref.uid}/")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    place = Here(tmp_path / "state", LocalBackend(state=tmp_path / "state", backoff_seconds=0.2))
    yield place
    place.end_all()
