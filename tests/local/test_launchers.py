"""Every launcher really run: two nodes on this machine, and the environment that it gives its processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kfjob.backends.base import LogRange
from kfjob.base.errors import SpecError
from kfjob.convert.accelerate import from_accelerate
from kfjob.joblog.events import JobPhase, LogLine
from tests.local.conftest import Here

SHOW = """
import json, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
said = {name: os.environ.get(name) for name in names} | {"sum": int(total.item()), "argv": sys.argv[1:]}
said["accelerate"] = {name: value for name, value in os.environ.items() if name.startswith(("ACCELERATE_", "FSDP_"))}
sys.stdout.write(json.dumps(said) + "\\n")
dist.destroy_process_group()
"""
SHOW_WITHOUT_TORCH = """
import json, os, socket, sys, time

place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
ranks = int(os.environ["WORLD_SIZE"])
if os.environ["RANK"] == "0":
    with socket.create_server(place) as server:
        peers = [server.accept()[0] for _ in range(ranks - 1)]
    total = 1 + sum(int(peer.recv(1)) for peer in peers)
    for peer in peers:
        peer.sendall(str(total).encode())
else:
    while True:
        try:
            peer = socket.create_connection(place)
            break
        except ConnectionRefusedError:  # rank 0 has not begun
            time.sleep(0.01)
    peer.sendall(b"1")
    total = int(peer.recv(8))
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
said = {name: os.environ.get(name) for name in names} | {"sum": total, "argv": sys.argv[1:]}
sys.stdout.write(json.dumps(said) + "\\n")
"""
"""For launchers that leave MASTER_PORT to rank 0: its processes meet there as those of torch do, without importing it."""
SPAWN = f"""
import os

EACH = 2
node, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
children = []
for local_rank in range(EACH):
    child = os.fork()
    if child:
        children.append(child)
        continue
    os.environ.update(RANK=str(node * EACH + local_rank), WORLD_SIZE=str(nodes * EACH), LOCAL_RANK=str(local_rank))
    exec({SHOW_WITHOUT_TORCH!r})
    sys.stdout.flush()
    os._exit(0)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""
FORK = {"PET_START_METHOD": "fork", "PET_RUN_PATH": "1"}
"""torchrun forks its ranks, so that torch is imported once."""
FSDP = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_machines": 2,
    "num_processes": 4,
    "machine_rank": 0,
    "rdzv_backend": "static",
    "fsdp_config": {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": True,
        "fsdp_sharding_strategy": "HYBRID_SHARD",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_transformer_layer_cls_to_wrap": "BertLayer",
    },
}


def told(here: Here, tmp_path: Path, code: str, words: Sequence[str] = (), **spec: Any) -> dict[str, list[dict[str, Any]]]:
    """What the processes of each pod said of themselves."""
    path = tmp_path / "program.py"
    path.write_text(code)
    plan = here.plan(command=[*words, str(path), "--flag", "two words"], nodes=2, **spec)
    ref = here.backend.submit(plan)
    phase = here.end(ref).job.phase
    logs = {
        pod: [line.text for line in here.backend.logs(ref, pod, LogRange()) if isinstance(line, LogLine)] for pod in plan.pods
    }
    assert phase is JobPhase.SUCCEEDED, logs
    return {pod: [json.loads(text) for text in texts if text.startswith('{"')] for pod, texts in logs.items()}


@pytest.mark.local
@pytest.mark.trainer
def test_four_processes_of_two_nodes_find_each_other_with_torchrun(here: Here, tmp_path: Path):
    """Static, which has a master; tests/local/test_torchrun.py has the other rendezvous."""
    said = told(here, tmp_path, SHOW, launcher="torchrun", rendezvous="static", processes_per_node=2, env=FORK)
    check_four_processes(said)
    check_master(said)


@pytest.mark.local
@pytest.mark.trainer
def test_four_processes_of_two_nodes_find_each_other_with_deepspeed(here: Here, tmp_path: Path):
    said = told(here, tmp_path, SHOW_WITHOUT_TORCH, launcher="deepspeed", processes_per_node=2)
    check_four_processes(said)
    check_master(said)


def check_four_processes(said: dict[str, list[dict[str, Any]]]) -> None:
    every = [process for processes in said.values() for process in processes]
    assert sorted(process["RANK"] for process in every) == ["0", "1", "2", "3"]
    assert sorted(process["LOCAL_RANK"] for process in every) == ["0", "0", "1", "1"]
    assert {process["WORLD_SIZE"] for process in every} == {"4"}
    assert {process["sum"] for process in every} == {4}
    assert all(process["argv"][-2:] == ["--flag", "two words"] for process in every)
    assert len({(process["MASTER_ADDR"], process["MASTER_PORT"]) for process in every}) == 1


def check_master(said: dict[str, list[dict[str, Any]]]) -> None:
    assert list(said) == ["job-master-0", "job-worker-0"]
    assert sorted(process["RANK"] for process in said["job-master-0"]) == ["0", "1"]


@pytest.mark.local
@pytest.mark.trainer
def test_an_fsdp_config_of_accelerate_reaches_every_process(here: Here, tmp_path: Path):
    spec = dict(from_accelerate(FSDP, program=["program.py"]).spec)
    said = told(here, tmp_path, SHOW, launcher="accelerate", processes_per_node=2, words=spec["command"][:-1], env=FORK)
    check_four_processes(said)
    check_master(said)
    for process in (process for processes in said.values() for process in processes):
        told_to_accelerate = process["accelerate"]
        assert told_to_accelerate["ACCELERATE_USE_FSDP"] == told_to_accelerate["FSDP_OFFLOAD_PARAMS"] == "true"
        assert told_to_accelerate["ACCELERATE_MIXED_PRECISION"] == "bf16"
        assert told_to_accelerate["FSDP_SHARDING_STRATEGY"] == "HYBRID_SHARD"
        assert told_to_accelerate["FSDP_TRANSFORMER_CLS_TO_WRAP"] == "BertLayer"


@pytest.mark.local
@pytest.mark.trainer
def test_python_starts_one_process_a_node(here: Here, tmp_path: Path):
    said = told(here, tmp_path, SHOW_WITHOUT_TORCH, launcher="python")
    (first,), (second,) = said["job-master-0"], said["job-worker-0"]
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert {first["WORLD_SIZE"], second["WORLD_SIZE"]} == {"2"}
    assert (first["sum"], first["argv"]) == (2, ["--flag", "two words"])


@pytest.mark.local
@pytest.mark.trainer
def test_a_program_that_spawns_its_own_processes(here: Here, tmp_path: Path):
    said = told(here, tmp_path, SPAWN, launcher="python")
    assert sorted(process["RANK"] for processes in said.values() for process in processes) == ["0", "1", "2", "3"]
    assert {process["sum"] for processes in said.values() for process in processes} == {4}


@pytest.mark.parametrize("launcher", ["accelerate", "deepspeed"])
def test_launcher_needs_a_number_of_processes(here: Here, launcher: str):
    with pytest.raises(SpecError, match="needs a number of processes"):
        here.plan(command=["x.py"], launcher=launcher, processes_per_node="auto")
