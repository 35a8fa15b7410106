"""Submit a trial job, read its results, and remove it in every case."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kfjob.api.diagnose import examine
from kfjob.api.lifecycle.start import start
from kfjob.api.lifecycle.stop import stop
from kfjob.api.lifecycle.wait import wait_for
from kfjob.api.planning import make_context, make_prepared
from kfjob.api.preflight.trial import Trial, plan_trial
from kfjob.api.preflight.trial_results import PodReport, TrialLog
from kfjob.api.prepared import sort_problems
from kfjob.api.reader import LiveReader
from kfjob.api.settings import Settings
from kfjob.api.target import find_target
from kfjob.backends.base import LogRange
from kfjob.base.common_types import JsonObject, Notify
from kfjob.base.concurrency import map_parallel, waiting_for
from kfjob.base.errors import KfjobError, NotFound, Problem, SpecError, WaitTimeout
from kfjob.base.text import plural
from kfjob.joblog.events import JobPhase, LogLine, PodChanged, find_host
from kfjob.plan import JobPlan
from kfjob.spec.job import JobSpec

THREADS = 16
"""Logs of a trial to read at the same time."""
_POD_FIELDS = ("pod", "node", "shm", "gpus", "dns", "port", "ranks")
LOG_LAG_SECONDS = 15.0
"""Delay of a pod's log after the end of the pod."""


class TrialResult(Struct, frozen=True, kw_only=True):
    """The result of a trial."""

    job: str
    phase: JobPhase
    pods: tuple[PodReport, ...]
    rows: tuple[JsonObject, ...]  # one per operation and size, over all ranks
    collectives: tuple[JsonObject, ...]  # one per operation, size and rank
    table: tuple[str, ...]  # the rows as text
    has_ended: bool  # whether the script reported its end
    problems: tuple[Problem, ...]
    archive: Path | None  # the folder with the logs

    @property
    def passed(self) -> bool:
        """Whether the collectives ended without errors."""
        return self.has_ended and not any(problem.severity == "error" for problem in self.problems)

    def describe(self) -> JsonObject:
        """Return the result as data for JSON."""
        return {
            "name": self.job,
            "phase": self.phase,
            "passed": self.passed,
            "problems": [
                {
                    "severity": problem.severity,
                    "title": problem.title,
                    "detail": problem.detail,
                    "hint": problem.hint,
                }
                for problem in self.problems
            ],
            "pods": [{name: getattr(pod, name) for name in _POD_FIELDS} for pod in self.pods],
            "collectives": self.rows,
            "ranks": self.collectives,
            "logs": str(self.archive) if self.archive else None,
        }


def run_trial(spec: JobSpec, trial: Trial, *, settings: Settings, notify: Notify) -> TrialResult:
    """Run the collectives on the job's nodes and in its image, and remove the trial afterwards.

    Raises:
        AlreadyExists: a trial of this job already exists.
        SpecError, Refused, Forbidden, Unreachable: as for a submit.
    """
    target = find_target(settings, notify=notify).choose_kind(spec.wanted_target).target
    plan = plan_trial(spec, make_context(target), trial)
    if problems := list(target.job_kind.find_plan_problems(plan)):
        raise SpecError(problems)
    reader = start(make_prepared(spec, plan, target.job_kind.compile(plan), target))
    ref = reader.ref
    archive = None
    try:
        notify(f"`{plan.name}` runs the collectives on {plural(plan.spec.nodes, 'node')}; it is removed afterwards")
        phase, timeout_problem = _wait(reader, trial.timeout)
        log = _read_results(reader)
        problems = _find_problems(reader, plan, log, phase, timeout_problem)
    finally:
        with suppress(NotFound):
            archive = stop(target.change(namespace=ref.namespace), plan.name)
    pods = tuple(log.pods[host] for host in plan.pods if host in log.pods)
    return TrialResult(
        job=plan.name,
        phase=phase,
        pods=pods,
        rows=tuple(log.rows),
        collectives=tuple(log.collectives),
        table=tuple(log.table),
        has_ended=log.done is not None,
        problems=tuple(sort_problems(problems)),
        archive=archive,
    )


def _wait(reader: LiveReader, timeout: float) -> tuple[JobPhase, Problem | None]:
    try:
        with waiting_for(f"`{reader.ref.name}` to end", timeout):
            return wait_for(reader, timeout=timeout), None
    except WaitTimeout as err:
        return JobPhase.PENDING, Problem(title=err.title, detail=err.cause, hint="set a longer `--timeout`")


def _read_results(reader: LiveReader) -> TrialLog:
    """Return the records of all pods. Wait a moment after the end of the job, because the end of a log may be late."""
    deadline = time.monotonic() + LOG_LAG_SECONDS
    while True:
        snapshot = reader.snapshot()
        log = TrialLog()
        texts = map_parallel(lambda state: _read_texts(reader, state.pod), snapshot.pods, threads=THREADS, name="logs")
        for state, pod_texts in zip(snapshot.pods, texts, strict=True):
            for text in pod_texts:
                log.add_line(find_host(state), text)
            if find_host(state) in log.pods:
                log.pods[find_host(state)].node = state.node
        ended = snapshot.job.phase.ended
        if not ended or snapshot.job.phase is JobPhase.FAILED or log.done or time.monotonic() > deadline:
            return log
        time.sleep(0.5)


def _read_texts(reader: LiveReader, pod: str) -> list[str]:
    with suppress(NotFound):  # the pod never started
        return [line.text for line in reader.logs(pod, LogRange()) if isinstance(line, LogLine)]
    return []


def _find_problems(
    reader: LiveReader, plan: JobPlan, log: TrialLog, phase: JobPhase, timeout_problem: Problem | None
) -> list[Problem]:
    problems = [*([timeout_problem] if timeout_problem else []), *log.find_problems(plan)]
    if silent_pods := set(log.silent_pods(plan.pods)):
        problems += [_not_started_problem(state) for state in reader.snapshot().pods if find_host(state) in silent_pods]
    errors = [problem for problem in problems if problem.severity == "error" and problem is not timeout_problem]
    if phase is not JobPhase.SUCCEEDED and not errors:
        with suppress(KfjobError):
            if cause := examine(reader).diagnosis.first_cause:
                detail = "\n".join([*cause.evidence, *([cause.cause] if cause.cause else [])])
                problems.append(Problem(title=cause.title, detail=detail, hint=cause.remedy or None))
    if not log.done and not problems:
        problems.append(Problem(title=f"`{plan.name}` ended ({phase}) without results from the collectives"))
    return problems


def _not_started_problem(state: PodChanged) -> Problem:
    reason = f"{state.reason}: {state.message}".strip(": ") or str(state.phase)
    return Problem(title=f"pod `{state.pod}` has not started", detail=reason)
