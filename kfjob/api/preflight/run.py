"""Submit a trial, listen to it, and remove it, whatever it came to."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kfjob.api import observe_config
from kfjob.api.context import plan_context
from kfjob.api.lifecycle import stop
from kfjob.api.preflight.result import ordered
from kfjob.api.preflight.trial import Trial, trial_plan
from kfjob.api.preflight.trial_results import Heard, PodSaid
from kfjob.api.run import Run
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.backends.base import LogRange
from kfjob.common_types import Notify
from kfjob.errors import KfjobError, NotFound, Problem, WaitTimeout
from kfjob.events import JobPhase, LogLine, PodChanged
from kfjob.plan import JobPlan
from kfjob.spec.source import LoadedSpec

AT_ONCE = 16
LAST_WORDS_SECONDS = 15.0
"""How long the log of a pod may lag behind its end."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a trial came to."""

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


def run_trial(loaded: LoadedSpec, trial: Trial, *, settings: Settings, notify: Notify) -> Outcome:
    """Run the collectives where the job would train.

    Raises:
        AlreadyExists: a trial of this job is there.
        SpecError, Refused, Forbidden, Unreachable: as for a submit.
    """
    target = find_target(settings, notify=notify)
    plan = trial_plan(loaded.spec, plan_context(settings, target.name), trial)
    backend = target.backend
    ref = backend.submit(plan)
    logs = None
    try:
        notify(f"`{plan.name}` runs the collectives on {plan.nodes} nodes; it is removed afterwards")
        run = Run(target, ref, observe_config.of_plan(plan))
        phase, late = _waited(run, trial.timeout)
        heard = _listened(run, plan)
        problems = _problems(run, plan, heard, phase, late)
    finally:
        with suppress(NotFound):
            logs = stop.stop(replace(target, namespace=ref.namespace), plan.name)
    pods = tuple(heard.pods[name] for name in plan.pods if name in heard.pods)
    return Outcome(job=plan.name, phase=phase, pods=pods, heard=heard, problems=ordered(problems), logs=logs)


def _waited(run: Run, timeout: float) -> tuple[JobPhase, Problem | None]:
    try:
        return run.wait(timeout=timeout), None
    except WaitTimeout as err:
        return JobPhase.PENDING, Problem(title=err.title, detail=err.cause, hint="`--timeout` gives it longer")


def _listened(run: Run, plan: JobPlan) -> Heard:
    """Everything that the pods said; the end of a log may come a moment after the end of the job."""
    deadline = time.monotonic() + LAST_WORDS_SECONDS
    while True:
        snapshot = run.snapshot()
        heard = Heard()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for pod, lines in zip(plan.pods, pool.map(lambda pod: _lines(run, pod), plan.pods), strict=True):
                for line in lines:
                    heard.take(pod, line)
        for state in snapshot.pods:
            if state.pod in heard.pods:
                heard.pods[state.pod].node = state.node
        ended = snapshot.job.phase.ended
        if not ended or snapshot.job.phase is JobPhase.FAILED or heard.done or time.monotonic() > deadline:
            return heard
        time.sleep(0.5)


def _lines(run: Run, pod: str) -> list[str]:
    with suppress(NotFound):  # it never started
        return [line.text for line in run.logs(pod, LogRange()) if isinstance(line, LogLine)]
    return []


def _problems(run: Run, plan: JobPlan, heard: Heard, phase: JobPhase, late: Problem | None) -> list[Problem]:
    found = [*([late] if late else []), *heard.problems(plan)]
    ignore_notice = heard.ignore_notice(plan.pods)
    if ignore_notice:
        found += [_not_started(state) for state in run.snapshot().pods if state.pod in ignore_notice and state.pod in plan.pods]
    if phase is not JobPhase.SUCCEEDED and not any(one.severity == "error" for one in found if one is not late):
        with suppress(KfjobError):
            if first := run.diagnose().first_cause:
                found.append(
                    Problem(title=first.title, detail="\n".join([*first.evidence, first.cause]), hint=first.remedy or None)
                )
    if not heard.done and not found:
        found.append(Problem(title=f"`{plan.name}` ended ({phase}) and said nothing of the collectives"))
    return found


def _not_started(state: PodChanged) -> Problem:
    why = f"{state.reason}: {state.message}".strip(": ") or str(state.phase)
    return Problem(title=f"pod `{state.pod}` has not started", detail=why)
