"""A DDP program under torchrun on two nodes whose ranks all print: every command is right while it runs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kfjob_command import KFJOB
from tests.local.conftest import TORCHRUN
from tests.local.machine import Machine, wait_until

pytestmark = [pytest.mark.local, pytest.mark.trainer]

STEPS = 6
PROGRAM = """
import json, os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for s in range(1, {steps} + 1):
    value = torch.nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    loss = value.item()
    losses.append(round(loss, 6))
    print(f"[rank{{rank}}]: step {{s}} loss {{loss + rank:.6f}}", flush=True)
    time.sleep(0.1)
if rank == 0:
    with open({losses!r}, "w") as file:
        json.dump(losses, file)
while not os.path.exists({end!r}):
    time.sleep(0.05)
dist.destroy_process_group()
"""


def start(folder: Path, machine: Machine) -> None:
    """Submit the program to two nodes."""
    (folder / "ddp.py").write_text(PROGRAM.format(steps=STEPS, losses=f"{folder}/losses.json", end=f"{folder}/end"))
    (folder / "job.yaml").write_text(f"name: job\nnodes: 2\ncommand: [{', '.join(TORCHRUN)}, {folder / 'ddp.py'}]\n")
    machine("submit", str(folder / "job.yaml"))


def read_progress(machine: Machine) -> dict[str, Any]:
    progress: dict[str, Any] = json.loads(machine("status", "job", "-o", "json"))["progress"]
    return progress


def test_progress_of_a_distributed_program_is_right_while_it_runs(tmp_path: Path):
    machine = Machine(tmp_path)
    start(tmp_path, machine)
    with subprocess.Popen(
        [KFJOB, "watch", "job", "-o", "json", "--quiet"], env=machine.env, stdout=subprocess.PIPE, text=True
    ) as watch:
        try:
            wait_until(lambda: (tmp_path / "losses.json").exists() and (read_progress(machine) or {}).get("step") == STEPS)
            losses = json.loads((tmp_path / "losses.json").read_text())
            assert read_progress(machine)["loss"] == pytest.approx(losses[-1])
            answer = json.loads(machine("master", "job", "-o", "json"))
            assert answer["pod"] == pod_of_rank_0(machine)
            (tmp_path / "end").touch()
            output, _ = watch.communicate(timeout=60)
        finally:
            watch.kill()
            (tmp_path / "end").touch()
            machine.run("stop", "job")
    shown = [value for line in output.splitlines() if (value := json.loads(line))["kind"] == "progress"]
    assert (shown[-1]["step"], shown[-1]["loss"]) == (STEPS, pytest.approx(losses[-1]))
    first = [value["pod"] for value in shown].index(answer["pod"])  # another rank may print before rank 0
    assert {value["pod"] for value in shown[first:]} == {answer["pod"]}
    assert {value.get("loss") for value in shown[first:]} <= {*losses, None}
    machine("report", "job", "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    assert answer["pod"] in page
    assert f"{losses[-1]:.4g}" in page


def pod_of_rank_0(machine: Machine) -> str:
    """Return the pod whose agent has group rank 0."""
    names = ("job-worker-0", "job-worker-1")
    return next(name for name in names if "group_rank=0" in machine("logs", "job", "--agents", "--pod", name))
