"""Events of a job with two workers that trains and ends."""

from __future__ import annotations

from kfjob.base.units import SECOND
from kfjob.joblog.events import Event, JobChanged, JobPhase, LogLine, PodChanged, PodPhase
from kfjob.spec.job import JobSpec

START = 1_795_000_000 * SECOND
SPEC = JobSpec(name="train", image="a:1", nodes=2, command=["torchrun", "train.py"]).model_dump_json(exclude_defaults=True)


def pod(index: int, phase: PodPhase, **fields) -> PodChanged:
    values = {
        "uid": f"pod-{index}",
        "replica_index": index,
        "node": f"node-{index}",
        "created": START,
        "container_id": f"c{index}",
    }
    return PodChanged(pod=f"train-worker-{index}", phase=phase, **{**values, **fields})


def job(phase: JobPhase, **fields) -> JobChanged:
    return JobChanged(phase=phase, created=START, **fields)


def line(index: int, text: str, second: int) -> LogLine:
    return LogLine(pod=f"train-worker-{index}", text=text, time=START + second * SECOND, container_id=f"c{index}")


def block(index: int, rank: int, second: int) -> list[LogLine]:
    prefix = "I1121 06:37:49.644000 1 torch/distributed/elastic/agent/server/api.py:552]"
    results = (
        f"restart_count=0 master_addr=train-worker-1 master_port=1 group_rank={rank} group_world_size=2 local_ranks=[0] "
        f"role_ranks=[{rank}] global_ranks=[{rank}] role_world_sizes=[2] global_world_sizes=[2]"
    )
    lines = ["[default] Rendezvous complete for workers. Result:", *(f"  {field}" for field in results.split(" "))]
    return [line(index, f"{prefix} {text}", second) for text in lines]


def progress(index: int, step: int, loss: float) -> LogLine:
    text = f"2026-11-21 06:37:50 I [train.py:102] Batch {step} Loss: {loss:.5f}, Speed: 8.00 samples/sec, lr: 0.000100"
    return line(index, text, 10 + step)


STARTING: tuple[Event, ...] = (
    job(JobPhase.PENDING),
    pod(0, PodPhase.PENDING),
    pod(1, PodPhase.PENDING),
    job(JobPhase.RUNNING, started=START + SECOND),
    pod(0, PodPhase.RUNNING, ready=True),
    pod(1, PodPhase.RUNNING, ready=True),
)
TRAINING: tuple[Event, ...] = (
    *STARTING,
    *block(0, 1, 5),
    *block(1, 0, 5),
    *(progress(1, s, 8.0 - s / 10) for s in range(1, 21)),
)
SUCCEEDED: tuple[Event, ...] = (
    *TRAINING,
    pod(0, PodPhase.SUCCEEDED, exit_code=0, reason="Completed"),
    pod(1, PodPhase.SUCCEEDED, exit_code=0, reason="Completed"),
    job(JobPhase.SUCCEEDED, started=START + SECOND, ended=START + 60 * SECOND),
)
FAILED: tuple[Event, ...] = (
    *STARTING,
    line(0, "ModuleNotFoundError: No module named 'flash_attn'", 6),
    pod(0, PodPhase.FAILED, exit_code=1, reason="Error"),
    job(JobPhase.FAILED, reason="PyTorchJobFailed", message="1 Worker replica(s) failed", ended=START + 60 * SECOND),
)
