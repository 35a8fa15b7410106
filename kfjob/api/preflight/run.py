"""Submit a trial job, read its results, and remove it in every case."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kfjob.api.diagnose import examine
from kfjob.api.lifecycle.stop import stop
from kfjob.api.lifecycle.wait import wait_for_end
from kfjob.api.planning import make_context
from kfjob.api.preflight.result import ordered
from kfjob.api.preflight.trial import Trial, trial_plan
from kfjob.api.preflight.trial_results import Heard, PodSaid
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.backends.base import LogRange
from kfjob.common_types import Notify
from kfjob.concurrency import map_parallel
from kfjob.errors import KfjobError, NotFound, Problem, WaitTimeout
from kfjob.events import JobPhase, LogLine, PodChanged
from kfjob.plan import JobPlan
from kfjob.spec.source import LoadedSpec
from kfjob.text import plural

THREADS = 16
LOG_LAG_SECONDS = 15.0
"""How long a pod's log may lag behind the end of the pod."""


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """The result of a trial."""

    job: str
    phase: JobPhase
    pods: tuple[PodSaid, ...]
    heard: Heard
    problems: tuple[Problem, ...]
    logs: Path | None  # where they were archived

    @property
    def passed(self) -> bool:
        """Whether the job could train."""
        return self.heard.done is not None and not any(problem.severity == "error" for problem in self.problems)

    def describe(self) -> dict[str, Any]:
        """For machines."""
        pods = [
            {
                "pod": one.pod,
                "node": one.node,
                "shm": one.shm,
                "gpus": one.gpus,
                "dns": one.dns,
                "port": one.port,
                "ranks": one.ranks,
            }
            for one in self.pods
        ]
        return {
            "job": self.job,
            "phase": self.phase,
            "passed": self.passed,
            "problems": [
                {"severity": one.severity, "title": one.title, "detail": one.detail, "hint": one.hint} for one in self.problems
            ],
            "pods": pods,
            "collectives": self.heard.rows,
            "ranks": self.heard.collectives,
            "logs": str(self.logs) if self.logs else None,
        }


def run_trial(loaded: LoadedSpec, trial: Trial, *, settings: Settings, notify: Notify) -> TrialResult:
    """Run the collectives where the job would train.

    Raises:
        AlreadyExists: a trial of this job is there.
        SpecError, Refused, Forbidden, Unreachable: as for a submit.
    """
    target = find_target(settings, notify=notify)
    plan = trial_plan(loaded.spec, make_context(target), trial)
    backend = target.backend
    ref = backend.submit(plan)
    logs = None
    try:
        notify(f"`{plan.name}` runs the collectives on {plural(plan.nodes, 'node')}; it is removed afterwards")
        reader = LiveReader(target, ref, plan.observe_config)
        phase, timeout_problem = _wait(reader, trial.timeout)
        heard = _read_results(reader, plan)
        problems = _find_problems(reader, plan, heard, phase, timeout_problem)
    finally:
        with suppress(NotFound):
            logs = stop(replace(target, namespace=ref.namespace), plan.name)
    pods = tuple(heard.pods[name] for name in plan.pods if name in heard.pods)
    return TrialResult(job=plan.name, phase=phase, pods=pods, heard=heard, problems=ordered(problems), logs=logs)


def _wait(reader: LiveReader, timeout: float) -> tuple[JobPhase, Problem | None]:
    phase = JobPhase.PENDING
    try:
        for view in wait_for_end(reader, timeout=timeout):
            phase = view.phase or phase
    except WaitTimeout as err:
        return JobPhase.PENDING, Problem(title=err.title, detail=err.cause, hint="`--timeout` waits longer")
    return phase, None


def _read_results(reader: LiveReader, plan: JobPlan) -> Heard:
    """Read what the pods printed; the end of a log may appear a moment after the end of the job."""
    deadline = time.monotonic() + LOG_LAG_SECONDS
    while True:
        snapshot = reader.snapshot()
        heard = Heard()
        logs = map_parallel(lambda pod: _read_lines(reader, pod), plan.pods, threads=THREADS, name="logs")
        for pod, lines in zip(plan.pods, logs, strict=True):
            for line in lines:
                heard.take(pod, line)
        for state in snapshot.pods:
            if state.pod in heard.pods:
                heard.pods[state.pod].node = state.node
        ended = snapshot.job.phase.ended
        if not ended or snapshot.job.phase is JobPhase.FAILED or heard.done or time.monotonic() > deadline:
            return heard
        time.sleep(0.5)


def _read_lines(reader: LiveReader, pod: str) -> list[str]:
    with suppress(NotFound):  # the pod never started
        return [line.text for line in reader.logs(pod, LogRange()) if isinstance(line, LogLine)]
    return []


def _find_problems(
    reader: LiveReader, plan: JobPlan, heard: Heard, phase: JobPhase, timeout_problem: Problem | None
) -> list[Problem]:
    problems = [*([timeout_problem] if timeout_problem else []), *heard.problems(plan)]
    if silent_pods := set(heard.silent_pods(plan.pods)):
        problems += [_not_started(state) for state in reader.snapshot().pods if state.pod in silent_pods]
    errors = [problem for problem in problems if problem.severity == "error" and problem is not timeout_problem]
    if phase is not JobPhase.SUCCEEDED and not errors:
        with suppress(KfjobError):
            if cause := examine(reader).diagnosis.first_cause:
                detail = "\n".join([*cause.evidence, cause.cause])
                problems.append(Problem(title=cause.title, detail=detail, hint=cause.remedy or None))
    if not heard.done and not problems:
        problems.append(Problem(title=f"`{plan.name}` ended ({phase}) without results of the collectives"))
    return problems


def _not_started(state: PodChanged) -> Problem:
    why = f"{state.reason}: {state.message}".strip(": ") or str(state.phase)
    return Problem(title=f"pod `{state.pod}` has not started", detail=why)
