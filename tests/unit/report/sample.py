"""A job with everything that a report shows (curves, rounds, a restart, a cause, warnings), and hostile text in all of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from kfjob.base.units import SECOND
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.events import Event, JobChanged, JobPhase, KubernetesEvent, LogLine, PodChanged, PodPhase
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.pods.log_spans import LogSpans
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.report.page import Report

START = 1_795_262_400 * SECOND
PODS = tuple(f"llama-worker-{index}" for index in range(4))
HOSTILE = (
    '</script></style><script>window.stolen=1</script><img src=x onerror="window.stolen=1" style="color:red">'
    "{{ 7 * 7 }}{% endif %}{# gone #}&\"'\x1b[31m\u202e"
)
SPEC = f"name: llama\nimage: registry.test/llama:7\nnodes: 4\nenv:\n  NOTE: '{HOSTILE}'\n"


def line(pod: str, text: str, second: float, container: str = "") -> LogLine:
    return LogLine(pod=pod, text=text, time=START + int(second * SECOND), container_id=container or f"{pod}-0")


def progress(step: int, second: float, container: str = "") -> LogLine:
    loss = 2.0 + 9.0 * math.exp(-step / 160) + 0.22 * math.sin(step * 1.7) + 0.15 * math.sin(step * 5.3)
    rate = 3e-4 * min(step / 60, 1.0) * (0.5 + 0.5 * math.cos(step / 900 * math.pi))
    speed = 34 + 1.5 * math.sin(step / 9)
    text = f"2026-11-21 12:00:00 I [train.py:102] Batch {step} Loss: {loss:.5f}, Speed: {speed:.2f} samples/sec, lr: {rate:.6f}"
    return line(PODS[1], text, second, container)


def block(pod: str, rank: int, second: float, container: str = "") -> Iterator[LogLine]:
    lead = "I1121 12:00:00.644000 1 torch/distributed/elastic/agent/server/api.py:552]"
    fields = (
        f"restart_count=0 master_addr={PODS[1]} master_port=1234 group_rank={rank} group_world_size=4 local_ranks=[0,1] "
        f"role_ranks=[{2 * rank},{2 * rank + 1}] global_ranks=[{2 * rank},{2 * rank + 1}] role_world_sizes=[8,8] "
        "global_world_sizes=[8,8]"
    )
    texts = ["[default] Rendezvous complete for workers. Result:", *(f"  {one}" for one in fields.split(" "))]
    return (line(pod, f"{lead} {text}".replace(",", ", "), second, container) for text in texts)


def events() -> Iterator[Event]:
    yield JobChanged(phase=JobPhase.PENDING, created=START)
    yield KubernetesEvent(
        kind="Pod", name=PODS[3], reason="FailedMount", message=f"volume busy {HOSTILE}", warning=True, time=START + 9 * SECOND,
        uid="1", count=3,
    )  # fmt: skip
    for index, pod in enumerate(PODS):
        yield _pod(index, PodPhase.RUNNING, started=START + (20 + 4 * index) * SECOND)
        yield from block(pod, (index - 1) % 4, 40 + index / 10)
        yield line(pod, f"/opt/train.py:7: UserWarning: be careful {HOSTILE}", 42)
    for step in range(1, 601):
        yield progress(step, 45 + step * 0.8)
    again = f"{PODS[2]}-1"
    yield line(PODS[2], "worker group is restarted", 290)
    yield line(PODS[2], "FutureWarning: old", 300, again)
    for index, pod in enumerate(PODS):
        yield from block(pod, (index - 1) % 4, 560 + index / 10, again if index == 2 else "")
    for step in range(601, 900):
        yield progress(step, 565 + (step - 600) * 0.8)
    yield line(
        PODS[2], f"[rank4]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. {HOSTILE}", 806, again
    )
    yield line(PODS[0], "[rank6]: RuntimeError: [pair.cc:561] Connection closed by peer [10.0.0.2]:54475.", 807)
    for index in range(4):
        ended = START + (808 + index) * SECOND
        more = {"restarts": 1, "container_id": again, "started": START + 299 * SECOND} if index == 2 else {}
        yield _pod(index, PodPhase.FAILED, exit_code=1, reason="Error", last_ended=ended, time=ended, **more)
    message = f"4 Worker replica(s) failed {HOSTILE}"
    yield JobChanged(phase=JobPhase.FAILED, message=message, created=START, started=START, ended=START + 815 * SECOND)


def _pod(index: int, phase: PodPhase, **more: object) -> PodChanged:
    values: dict[str, object] = {
        "uid": f"u{index}", "replica_index": index, "node": f"ip-10-0-0-{index}.ec2.internal", "created": START + SECOND,
        "started": START + (20 + 4 * index) * SECOND, "container_id": f"{PODS[index]}-0",
    }  # fmt: skip
    return PodChanged(pod=PODS[index], phase=phase, **{**values, **more})  # type: ignore[arg-type]


def make_report(job_events: Iterable[Event], name: str = "llama") -> Report:
    view, symptoms, spans = JobView(config=ObserveConfig(workers=PODS, expected_steps=2000)), SymptomCollector(), LogSpans()
    for event in job_events:
        view = reduce(view, event)
        symptoms.feed(event, view)
        spans.feed(event)
    return Report(
        name=name,
        view=view,
        diagnosis=diagnose(symptoms, view, job=name),
        warnings=symptoms.warnings.ranked(),
        spans=spans.by_pod,
        facts={"namespace": "team", "launch": "20261121-120000-x7", "image": f"registry.test/llama:7 {HOSTILE}"},
        spec=SPEC,
        created=START + 900 * SECOND,
        version="0.1.0",
    )
