"""DDP programs under torchrun on two nodes, one for each shape of progress lines: every command is right while they run."""

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
SHAPES = {
    "every rank prints": 'print(f"[rank{rank}]: step {s} loss {loss + rank:.6f}", flush=True)',
    "bar": r"print(f'\rTrain:  5%|█  | {s}/6 [00:01<00:09,  4.5it/s, loss={loss:.6f}]', end='' if s < 6 else '\n', flush=True)",
    "pairs": 'print(f"step={s} loss={loss:.6f} lr=0.1", flush=True)',
    "counter": 'print(f"Epoch [1/2], Step [{s}/6], Loss: {loss:.6f}", flush=True)',
    "json": 'print(json.dumps({"step": s, "train": {"loss": round(loss, 6)}}), flush=True)',
    "block": r'print(f"[step={s}/6]\n    train/loss={loss:.6f}\n    optim/lr=0.1", flush=True)',
    "table": r'print(("step  train_loss  lr\n" if s == 1 else "") + f"{s}     {loss:.6f}    0.1", flush=True)',
}
SHORT = {"every rank prints"}
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
    if rank == 0 or {every}:
        {show}
        time.sleep(0.1)
if rank == 0:
    with open({losses!r}, "w") as file:
        json.dump(losses, file)
while not os.path.exists({end!r}):
    time.sleep(0.05)
dist.destroy_process_group()
"""


def start(folder: Path, machine: Machine, shape: str) -> None:
    """Submit the program of this shape to two nodes."""
    values = {"steps": STEPS, "every": shape == "every rank prints", "show": SHAPES[shape]}
    paths = {"losses": str(folder / "losses.json"), "end": str(folder / "end")}
    (folder / "ddp.py").write_text(PROGRAM.format(**values, **paths))
    (folder / "job.yaml").write_text(f"name: job\nnodes: 2\ncommand: [{', '.join(TORCHRUN)}, {folder / 'ddp.py'}]\n")
    machine("submit", str(folder / "job.yaml"))


def read_progress(machine: Machine) -> dict[str, Any]:
    progress: dict[str, Any] = json.loads(machine("status", "job", "-o", "json"))["progress"]
    return progress


@pytest.mark.parametrize("shape", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.long) for name in SHAPES])
def test_progress_of_a_distributed_program_is_right_while_it_runs(shape: str, tmp_path: Path):
    machine = Machine(tmp_path)
    start(tmp_path, machine, shape)
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
