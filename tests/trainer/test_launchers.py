"""The trainer on two ranks under DeepSpeed's launcher and with `spawn`. test_torchrun.py has torchrun."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kfjob.local.machine import free_port
from kfjob.plan.launchers import make_command
from kfjob.spec.job import JobSpec
from kfjob.trainer.__main__ import main
from tests.trainer.forked import Program

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TRAIN = {
    "model": "micro-llama",
    "data": "synthetic",
    "sequence_length": 16,
    "max_steps": 3,
    "log_every": 1,
    "micro_batch_size": 4,
    "precision": "fp32",
    "strategy": "ddp",
    "schedule": "constant",
}
RUN_MODULE = "import runpy, sys; sys.argv[:1] = []; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
"""`python -m` in a forked process, which need not import torch; the ranks that it spawns do."""
LAUNCHER_VARIABLE = re.compile(r"(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_.*|KFJOB_.*)")


def local_command(launcher, port, **train):
    """Return kfjob's command for one node with two ranks, changed to run on this machine."""
    processes = 1 if launcher == "python" else 2
    train = TRAIN | train | ({"spawn": 2} if launcher == "python" else {})
    spec = JobSpec.model_validate(
        {"name": "j", "image": "i", "launcher": launcher, "processes_per_node": processes, "train": train}
    )
    argv = list(make_command(spec, launcher, str(processes)))
    for name, value in {"$(RANK)": "0", "$(MASTER_ADDR)": "127.0.0.1", "$(MASTER_PORT)": str(port)}.items():
        argv = [word.replace(name, value) for word in argv]
    return [sys.executable if argv[0] == "python3" else str(BIN / argv[0]), *argv[1:]]


def environment():
    """Return the environment of a pod."""
    inherited = {name: value for name, value in os.environ.items() if not LAUNCHER_VARIABLE.fullmatch(name)}
    return inherited | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}


@pytest.fixture
def port():
    return free_port()


@pytest.fixture(scope="module")
def reference(workers):
    (result,) = workers.run("run_training", {"spec": TRAIN | {"strategy": "none", "micro_batch_size": 8}})
    return list(result["losses"].values())


def test_deepspeed_launcher_gives_the_same_losses(port, reference, tmp_path):
    metrics_file = tmp_path / "metrics.jsonl"
    argv = local_command("deepspeed", port, metrics_file=str(metrics_file))
    process = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    assert "strategy ddp, world size 2, global batch 8 samples" in process.stdout
    losses = [json.loads(line)["loss"] for line in metrics_file.read_text().splitlines()]
    assert losses == pytest.approx(reference, abs=2e-6, rel=0)


def test_spawned_ranks_have_the_same_losses_and_a_signal_stops_them_together(port, reference, tmp_path):
    """One signal to the parent gives one checkpoint of both ranks, and one exit code."""
    folder, metrics_file = tmp_path / "c", tmp_path / "metrics.jsonl"
    endless = {"max_steps": 10**6, "checkpoint_dir": str(folder), "checkpoint_every": 0, "metrics_file": str(metrics_file)}
    _, module, name, *arguments = local_command("python", port, **endless)
    assert (module, name) == ("-m", "kfjob.trainer")
    process = Program(RUN_MODULE, name, *arguments, env=environment())
    try:
        assert any("] Batch 3 Loss" in line for line in process.stdout)
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=100)
        assert process.returncode == 128 + signal.SIGTERM, output
    finally:
        process.kill()
    losses = [json.loads(line)["loss"] for line in metrics_file.read_text().splitlines()[:3]]
    assert losses == pytest.approx(reference, abs=2e-6, rel=0)
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["reason"]) == ("stopped", "signal")
    assert (folder / f"step-{outcome['step']:06d}" / "__1_0.distcp").exists()


def test_spawn_under_a_launcher_is_an_error(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["--model=micro-llama", "--data=synthetic", "--sequence-length=16", "--max-steps=1", "--spawn=2"]) == 1
    output = capsys.readouterr()
    assert output.err.startswith(
        "error: a launcher has started this process as one rank of several\n  --> spawn\nhint: remove `spawn`"
    )
    assert "Outcome failed step none" in output.out
