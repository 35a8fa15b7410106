"""Helpers that build a job from events and diagnose it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.diagnosis import Diagnosis, Issue
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.events import END_UNKNOWN, Event, JobChanged, JobPhase, LogLine
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce

RECORDED = Path(__file__).parents[2] / "data" / "agent-logs"
START = 1_795_000_000 * SECOND
FINISHED = "I1121 06:20:54.3 1 torch/distributed/elastic/agent/server/api.py:931] [default] worker group successfully finished."


def examine(
    events: Iterable[Event], config: ObserveConfig | None = None, *, local: bool = False
) -> tuple[Diagnosis, SymptomCollector]:
    view, symptoms = JobView(config=config or ObserveConfig(), local=local), SymptomCollector()
    for event in events:
        view = reduce(view, event)
        symptoms.feed(event, view)
    return diagnose(symptoms, view, job="a"), symptoms


def get_cause(diagnosis: Diagnosis) -> Issue:
    assert diagnosis.first_cause
    return diagnosis.first_cause


def find_cause(events: Iterable[Event], config: ObserveConfig | None = None, *, local: bool = False) -> Issue:
    return get_cause(examine(events, config, local=local)[0])


def read_log(text: str, phase: JobPhase = JobPhase.STOPPED) -> Diagnosis:
    """Diagnose a job with one pod that printed this text."""
    end = JobChanged(phase=phase, reason=END_UNKNOWN if phase is JobPhase.STOPPED else "")
    return examine([*(LogLine(pod="a-worker-0", text=line) for line in text.splitlines()), end])[0]


def read_cause(text: str, phase: JobPhase = JobPhase.STOPPED) -> Issue:
    return get_cause(read_log(text, phase))


def recorded(case: str) -> Iterable[Event]:
    for path in sorted((RECORDED / case).glob("*.log")):
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            yield LogLine(pod=path.stem, text=text)


def line(text: str, second: float = 0, pod: str = "a-worker-0", container: str = "c") -> LogLine:
    return LogLine(pod=pod, text=text, time=START + int(second * SECOND), container_id=container)


def lines(text: str, second: float = 0, pod: str = "a-worker-0", container: str = "c") -> list[LogLine]:
    return [line(item, second, pod, container) for item in text.strip("\n").splitlines()]


def block(rank: int, second: float, pod: str, *, world: int = 2, addr: str = "a-worker-0", port: int = 1234) -> list[LogLine]:
    """Return the lines of a complete rendezvous block."""
    lead = "I1121 06:37:49.644000 1 torch/distributed/elastic/agent/server/api.py:552]"
    fields = (
        f"restart_count=0 master_addr={addr} master_port={port} group_rank={rank} group_world_size={world} local_ranks=[0] "
        f"role_ranks=[{rank}] global_ranks=[{rank}] role_world_sizes=[{world}] global_world_sizes=[{world}]"
    )
    texts = ["[default] Rendezvous complete for workers. Result:", *(f"  {field}" for field in fields.split(" "))]
    return [line(f"{lead} {text}", second, pod) for text in texts]


def exit_report(code: int = 1, pid: int = 9) -> str:
    """Return the line in which an agent reports the exit code of a worker."""
    lead = "E1121 06:38:10.000000 1 torch/distributed/elastic/multiprocessing/api.py:1002]"
    return f"{lead} failed (exitcode: {code}) local_rank: 0 (pid: {pid}) of binary: /usr/bin/python"


def progress(step: int, second: float, pod: str = "a-worker-0", loss: float = 2.0) -> LogLine:
    text = f"2026-11-21 06:37:50 I [train.py:102] Batch {step} Loss: {loss:.5f}, Speed: 8.00 samples/sec, lr: 0.000100"
    return line(text, second, pod)
