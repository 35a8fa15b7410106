"""preflight on this machine: what it finds without starting anything, and the collectives between two real agents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.machine import Machine

pytestmark = pytest.mark.local


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    yield found
    assert json.loads(found("list", "-o", "json")) == []  # nothing is left behind


def preflight(machine: Machine, *argv: str, code: int = 0, **spec: Any) -> dict[str, Any]:
    path = machine.folder / "job.yaml"
    script = machine.folder / "train.py"
    script.touch()
    path.write_text(json.dumps({"name": "job", "command": f"torchrun {script}", **spec}))
    found: dict[str, Any] = json.loads(machine("preflight", str(path), "-o", "json", *argv, code=code))
    return found


def test_preflight_reports_everything_that_is_missing(machine: Machine):
    found = preflight(
        machine,
        code=1,
        nodes=2,
        resources={"gpus": 512 // 8},
        command="nothing-of-this-name train.py",
        volumes=[{"name": "data", "host_path": "/nothing/here", "mount_path": "/data"}],
    )
    where = {problem["path"]: problem["title"] for problem in found["problems"] if problem["severity"] == "error"}
    assert where["resources"].startswith("job `job` needs 128 GPUs, this machine has ")
    assert where["command"] == "program `nothing-of-this-name` is not on this machine"
    assert "`/nothing/here` is not on this machine" in where["volumes.0.host_path"]
    assert found["run"] is None


@pytest.mark.trainer
def test_the_collectives_between_two_agents(machine: Machine):
    found = preflight(machine, "--run", "--sizes", "4K", "--seconds", "0.02", nodes=2, resources={"memory": "1Gi"})
    run = found["run"]
    assert (run["phase"], run["passed"]) == ("Succeeded", True)
    assert [(pod["pod"], pod["port"]["ok"]) for pod in run["pods"]] == [
        ("job-preflight-worker-0", True),
        ("job-preflight-worker-1", True),
    ]
    assert len({row["op"] for row in run["collectives"]}) == 9
    assert Path(run["logs"]).is_dir()


@pytest.mark.trainer
def test_a_network_that_is_set_up_wrong_is_found_before_training(machine: Machine):
    wrong = {"GLOO_SOCKET_IFNAME": "eth9"}
    found = preflight(machine, "--run", "--sizes", "4K", code=1, env=wrong, processes_per_node=2)
    assert found["passed"]
    assert not found["run"]["passed"]
    said = json.dumps(found["run"]["problems"])
    assert "failed in the rendezvous" in said
    assert "eth9" in said
