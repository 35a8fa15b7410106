"""One look at a job: its state, and what the heads and tails of its logs tell, as a JobView."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from kfjob.api.archive import Reader
from kfjob.backends.base import JobRef, LogRange
from kfjob.errors import NotFound, WaitTimeout
from kfjob.events import JobSnapshot, LogGap, LogLine, PodChanged, PodPhase, Tick
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Confidence, Master, NoMaster
from kfjob.observe.view import JobView, fold
from kfjob.plan import JobPlan
from kfjob.spec import names
from kfjob.spec.job import JobSpec

HEAD_BYTES = 256 * 1024
"""An agent's first rendezvous block stands within the first kilobytes; a library's banner may come before it."""
STAMP_BYTES = 32  # before each line; whether the limit counts them is the backend's affair
TAIL_LINES = 400
AT_ONCE = 16
POLL_SECONDS = 1.0


def config_of_plan(plan: JobPlan) -> ObserveConfig:
    """What observation needs of a plan."""
    return config_of_spec(JobSpec.model_validate_json(plan.spec_json))


def config_of_snapshot(snapshot: JobSnapshot) -> ObserveConfig:
    """What observation needs of a job that is there; of one that kfjob did not submit, its pods are all that is known."""
    if snapshot.spec:
        return config_of_spec(JobSpec.model_validate_json(snapshot.spec))
    pods = sorted(snapshot.pods, key=lambda pod: (pod.replica_type != "Master", pod.replica_index))
    return ObserveConfig(workers=tuple(pod.pod for pod in pods))


def config_of_spec(spec: JobSpec) -> ObserveConfig:
    """What observation needs of a spec."""
    processes = spec.processes_per_node
    return ObserveConfig(
        workers=names.pod_names(spec.name, spec.nodes, master=spec.has_master),
        rendezvous=spec.rendezvous.backend,
        processes_per_node=processes if isinstance(processes, int) else None,
        expected_steps=spec.train.max_steps if spec.train else None,
        progress_pattern=spec.progress,
        trainer="kfjob" if spec.train else "",
        loglevel=loglevel if isinstance(loglevel := spec.env.get("LOGLEVEL", "INFO"), str) else "INFO",
    )


def look(reader: Reader, ref: JobRef, snapshot: JobSnapshot, config: ObserveConfig) -> JobView:
    """What is known now. Logs are read from their head and their tail, a bounded number of pods at a time."""
    view = fold(JobView(config=config), (snapshot.job, *snapshot.pods))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for lines in pool.map(lambda pod: _lines(reader, ref, pod), snapshot.pods):
            view = fold(view, lines)
    return fold(view, [Tick(time=time.time_ns())] if view.running else [])


def _lines(reader: Reader, ref: JobRef, pod: PodChanged) -> list[LogLine | LogGap]:
    if pod.phase is PodPhase.PENDING and not pod.restarts:
        return []  # nothing has run: the question would only be refused
    lines: list[LogLine | LogGap] = []
    with suppress(NotFound):
        head = list(_text(reader.logs(ref, pod.pod, LogRange(limit_bytes=HEAD_BYTES))))
        if sum(len(line.text) + STAMP_BYTES for line in head) < HEAD_BYTES * 3 // 4:
            return [*head]
        whole = head[:-1]  # the last line may be cut: `group_rank=1` could be the begin of 12
        since = whole[-1].time if whole else None
        lines += [*whole, LogGap(pod=pod.pod, after=since, reason="only the head and the tail were read")]
        lines += _after(since, _text(reader.logs(ref, pod.pod, LogRange(tail=TAIL_LINES))))
    return lines


def _text(lines: Iterable[object]) -> Iterator[LogLine]:
    return (line for line in lines if isinstance(line, LogLine))


def _after(time: int | None, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines of the tail that the head did not hold; all of them where lines have no time."""
    return (line for line in lines if time is None or line.time is None or line.time > time)


def find_master(ask: Callable[[], JobView], job: str, *, timeout: float = 0.0) -> Master:
    """Who prints progress; `ask` takes a fresh look. With a `timeout` it is asked again until more than a prediction is known.

    Raises:
        Unanswered: there is no evidence, and no rule that tells.
        WaitTimeout: there is still none after `timeout` seconds, or the job ended without any.
    """
    deadline = time.monotonic() + timeout
    while True:
        view = ask()
        answer = view.master
        if isinstance(answer, Master) and (timeout == 0 or answer.confidence is not Confidence.PREDICTED or not view.running):
            return answer
        if isinstance(answer, NoMaster) and (timeout == 0 or not view.running):
            raise answer.error(job)
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                f"no master of `{job}` after {timeout:g} s", cause=view.headline, hint=f"`kfjob status {job}` shows its pods"
            )
        time.sleep(POLL_SECONDS)
