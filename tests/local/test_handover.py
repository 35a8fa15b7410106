"""Who prints moves to another pod, with real agents: with the legacy etcd rendezvous the first to come back gets rank 0."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfjob.api.jobs import attach
from kfjob.api.settings import Settings
from kfjob.joblog.master.evidence import Confidence, Master
from tests.local.conftest import TORCHRUN, Here

TRAIN = """
import time
from datetime import timedelta
import torch
import torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
end = time.monotonic() + 240
for step in range(1, 10**6):
    late = torch.tensor(float(time.monotonic() > end))
    dist.all_reduce(late)
    if late:
        break
    if dist.get_rank() == 0:
        print({"loss": 3.0 / step, "epoch": step / 1000}, flush=True)
    time.sleep(0.2)
"""


@pytest.mark.local
@pytest.mark.trainer
def test_the_master_changes_after_its_pod_was_killed(here: Here, tmp_path: Path):
    program, late = tmp_path / "train.py", tmp_path / "late"
    program.write_text(TRAIN)
    ref = here.submit(
        command=["sh", "-c", f"[ -e {late} ] && sleep 30; exec {' '.join(TORCHRUN)} {program}"],
        nodes=2,
        rendezvous="etcd",
        elastic={"min": 1, "max": 2, "max_restarts": 5},
        restarts={"policy": "OnFailure"},
    )
    told = attach(ref.name, settings=Settings(backend="local", state=here.state)).masters(interval=0.5)
    first = confirmed(told, "")
    (pod,) = (pod for pod in here.get(ref).pods if pod.pod == first.pod)
    late.touch()  # the other agent is the first to come to the next round
    os.kill(int(pod.container_id.rpartition("/")[2]), signal.SIGKILL)
    second = confirmed(told, first.pod)
    assert {first.pod, second.pod} == {"job-worker-0", "job-worker-1"}
    assert (first.group_rank, second.group_rank) == (0, 0)
    assert second.round_time is not None
    assert first.round_time is not None
    assert second.round_time > first.round_time
    assert next(pod.restarts for pod in here.get(ref).pods if pod.pod == first.pod) == 1
    here.backend.stop(ref, timeout=60)


def confirmed(told: Iterator[Master], before: str) -> Master:
    """The next answer that is sure, and another pod than `before`."""
    return next(answer for answer in told if answer.confidence is Confidence.CONFIRMED and answer.pod != before)
