"""One program under every launcher, on two ranks: torch's two, accelerate's, DeepSpeed's, spawned; alone is the baseline."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kfjob.plan.launchers import make_command
from kfjob.spec.job import JobSpec
from kfjob.trainer.__main__ import main

pytestmark = pytest.mark.local

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TRAIN = {
    "model": "micro-llama",
    "data": "synthetic",
    "sequence_length": 16,
    "max_steps": 3,
    "micro_batch_size": 4,
    "precision": "fp32",
    "strategy": "ddp",
}
STARTED = re.compile(r"(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|PET_.*|KFJOB_.*)")


def words(launcher, port, **train):
    """What a pod of one node with two ranks runs, as kfjob writes it, on this machine."""
    each = 1 if launcher == "python" else 2
    train = TRAIN | train | ({"spawn": 2} if launcher == "python" else {})
    spec = JobSpec.model_validate({"name": "j", "image": "i", "launcher": launcher, "processes_per_node": each, "train": train})
    found = list(make_command(spec, launcher, str(each)))
    for name, value in {"$(RANK)": "0", "$(MASTER_ADDR)": "127.0.0.1", "$(MASTER_PORT)": str(port)}.items():
        found = [word.replace(name, value) for word in found]
    return [sys.executable if found[0] == "python3" else str(BIN / found[0]), *found[1:]]


def environment(port):
    """torch's launchers are told by PET_* variables in a pod."""
    kept = {name: value for name, value in os.environ.items() if not STARTED.fullmatch(name)}
    told = {"PET_NNODES": "1", "PET_NPROC_PER_NODE": "2", "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
    return kept | told | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "DS_ACCELERATOR": "cpu"}


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def alone(workers):
    (result,) = workers.run("run_training", {"spec": TRAIN | {"strategy": "none", "micro_batch_size": 8}})
    return list(result["losses"].values())


@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param("torchrun", marks=pytest.mark.long),  # test_agents.py runs it each time
        pytest.param("launch", marks=pytest.mark.long),
        "accelerate",
        "deepspeed",
        "python",
    ],
)
def test_every_launcher_gives_the_same_curve(launcher, port, alone, tmp_path):
    told = tmp_path / "figures.jsonl"
    argv = words(launcher, port, metrics_file=str(told))
    done = subprocess.run(argv, env=environment(port), capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "strategy ddp, world size 2, global batch 8 samples" in done.stdout
    found = [json.loads(line)["loss"] for line in told.read_text().splitlines()]
    assert found == pytest.approx(alone, abs=2e-6, rel=0)


def test_deepspeeds_own_command_on_one_machine(port, alone, tmp_path):
    """`deepspeed --num_gpus 2`, as a person types it; it starts the launcher that pods run."""
    told = tmp_path / "figures.jsonl"
    train = [f"--{name.replace('_', '-')}={value}" for name, value in (TRAIN | {"metrics_file": told}).items()]
    command = f"{BIN}/deepspeed --num_gpus=2 --master_addr=127.0.0.1 --master_port={port} --module kfjob.trainer".split()
    done = subprocess.run(
        [*command, *train], env=environment(port), capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = [json.loads(line)["loss"] for line in told.read_text().splitlines()]
    assert found == pytest.approx(alone, abs=2e-6, rel=0)


def test_spawned_ranks_are_stopped_together(port, tmp_path):
    """One signal to the parent, one checkpoint of both, one exit code."""
    folder, log = tmp_path / "c", tmp_path / "log"
    argv = words("python", port, max_steps=10**6, checkpoint_dir=str(folder), checkpoint_every=0)
    with log.open("w") as output:
        process = subprocess.Popen(argv, env=environment(port), stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        deadline = time.monotonic() + 200
        while "] Batch 3 Loss" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        process.terminate()
        assert process.wait(100) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["outcome"], outcome["reason"]) == ("stopped", "signal")
    assert (folder / f"step-{outcome['step']:06d}" / "__1_0.distcp").exists()


def test_a_launchers_rank_does_not_spawn(monkeypatch, capsys):
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert main(["--model=micro-llama", "--data=synthetic", "--sequence-length=16", "--max-steps=1", "--spawn=2"]) == 1
    said = capsys.readouterr()
    assert said.err.startswith(
        "error: a launcher has started this process as one rank of several\n  --> spawn\nhint: remove `spawn`"
    )
    assert "Outcome failed step none" in said.out
