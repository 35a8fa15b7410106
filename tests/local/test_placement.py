"""What this machine makes of a plan: environment, addresses, folders, limits."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kfjob.backends import folder
from kfjob.base.errors import Refused
from kfjob.joblog.events import JobPhase
from kfjob.local import machine, placement
from kfjob.local.interpreter import Interpreter
from kfjob.local.launch_spec import LaunchSpec
from kfjob.plan import JobPlan
from kfjob.plan.job_scripts import find_job_script
from kfjob.shell.commands import find_script
from tests.local.conftest import PATIENCE, Here

SHOW = "import json, os, sys; print(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))"
OF_AN_AGENT_AROUND_US = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "ROLE_RANK": "1",
    "ROLE_NAME": "default",
    "WORLD_SIZE": "8",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_WORLD_SIZE": "4",
    "ROLE_WORLD_SIZE": "8",
    "NODE_RANK": "1",
    "MASTER_ADDR": "elsewhere",
    "MASTER_PORT": "1",
    "PET_STANDALONE": "",
    "PET_RDZV_ID": "other",
    "TORCHELASTIC_RUN_ID": "other",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}


def launch_spec(plan: JobPlan, tmp_path: Path) -> LaunchSpec:
    order, _ = placement.build_launch_spec(
        plan, uid="u", launch=tmp_path / "launch", volumes=tmp_path / "volumes", backoff_seconds=1, interpreter=Interpreter()
    )
    return order


@pytest.mark.local
def test_agents_do_not_get_variables_of_an_enclosing_agent(here: Here, monkeypatch: pytest.MonkeyPatch):
    for name, value in OF_AN_AGENT_AROUND_US.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KFJOB_LOCAL_POD", "another-job/pod")
    monkeypatch.setenv("RANK_OF_ORDER", "kept")
    ref = here.submit(SHOW, env={"COLOUR": "blue"})
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED
    env = json.loads(here.texts(ref)[0])["env"]
    left = {name: env[name] for name in OF_AN_AGENT_AROUND_US if name in env}
    assert left == {"PET_RDZV_ID": f"job-{ref.launch}"}
    assert (env["COLOUR"], env["RANK_OF_ORDER"], env["HOSTNAME"]) == ("blue", "kept", "job-worker-0")
    assert env["KFJOB_LOCAL_POD"] == f"{ref.uid}/job-worker-0"
    assert env["PET_NNODES"] == "1:1"


def test_threads_share_the_cores_unless_someone_has_said_how_many(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(machine, "cores", lambda: 16)

    def threads(**spec: Any) -> str | None:
        return launch_spec(here.plan("pass", **spec), tmp_path).agents[0].env.get("OMP_NUM_THREADS")

    assert threads() == "16"
    assert threads(nodes=2, processes_per_node=3) == "2"
    assert threads(nodes=8, processes_per_node=8) == "1"
    assert threads(env={"OMP_NUM_THREADS": 5}) == "5"
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert threads() is None  # the machine's own is inherited


def test_addresses_of_agents_sort_like_their_pods(here: Here, tmp_path: Path):
    agents = launch_spec(here.plan("pass", nodes=12), tmp_path).agents
    addresses = {agent.pod: agent.env["PET_LOCAL_ADDR"] for agent in agents}
    assert len(set(addresses.values())) == 12
    assert sorted(addresses, key=addresses.__getitem__) == sorted(addresses)
    endpoints = {agent.env["PET_RDZV_ENDPOINT"] for agent in agents}
    assert endpoints == {f"{min(addresses.values())}:{next(iter(endpoints)).rpartition(':')[2]}"}


def test_without_other_loopback_addresses_all_agents_have_the_first(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "_is_free", lambda *_: False)  # as macOS answers
    assert machine.loopback_addresses(3) == ("127.0.0.1",) * 3


def test_free_ports_are_below_the_ports_of_connections():
    ports = {machine.free_port() for _ in range(20)}
    assert len(ports) > 1
    low, _ = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(ports) < int(low)


@pytest.mark.local
def test_paths_of_volumes_lead_to_folders_of_this_machine(here: Here, tmp_path: Path):
    (tmp_path / "corpus").mkdir()
    code = (
        "import os, sys; [open(os.path.join(p, os.environ['HOSTNAME']), 'w') for p in sys.argv[1:]]; print(os.environ['OUT'])"
    )
    ref = here.submit(
        command=[sys.executable, "-c", code, "/checkpoints", "/data", "/scratch/"],
        nodes=2,
        env={"OUT": "/checkpoints/run 1"},
        volumes=[
            {"name": "out", "mount_path": "/checkpoints", "pvc": "claim"},
            {"name": "in", "mount_path": "/data", "host_path": str(tmp_path / "corpus")},
            {"name": "tmp", "mount_path": "/scratch", "empty_dir": True},
        ],
    )
    assert here.end(ref).job.phase is JobPhase.SUCCEEDED, here.texts(ref)
    pods = ["job-worker-0", "job-worker-1"]
    claim = here.state / "volumes" / "claim"
    assert here.texts(ref) == [f"{claim}/run 1"]
    assert sorted(path.name for path in claim.iterdir()) == pods
    assert sorted(path.name for path in (tmp_path / "corpus").iterdir()) == pods
    for pod in pods:  # of each pod its own
        assert [path.name for path in (here.launch(ref) / folder.RUN / "empty" / pod / "tmp").iterdir()] == [pod]
    here.backend.stop(ref, timeout=PATIENCE)
    assert sorted(path.name for path in claim.iterdir()) == pods
    assert not list(here.archived(ref).rglob("empty"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"resources": {"gpus": 4}, "nodes": 2}, ["needs 8 GPUs", "this machine has 1", "2 nodes with 4 GPUs"]),
        ({"nodes": 100, "processes_per_node": 8}, ["800 processes", "2 cores", "at most 32"]),
        ({"command": ["no-such-program"]}, ["program `no-such-program` is not on this machine"]),
        ({"command": ["./no/such/program"]}, ["program `./no/such/program` is not on this machine"]),
        ({"volumes": [{"name": "v", "mount_path": "/v", "host_path": "/no/such/folder"}]}, ["`/no/such/folder`", "mkdir -p"]),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_numbers(
    here: Here, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], words: list[str]
):
    monkeypatch.setattr(machine, "gpus", lambda: ("0",))
    monkeypatch.setattr(machine, "cores", lambda: 2)
    with pytest.raises(Refused) as caught:
        here.submit(**{"command": ["sleep", "600"]} | spec)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "hint:" in str(caught.value)
    assert not list((here.state / "local").rglob("*.json")) if here.state.exists() else True


@pytest.mark.parametrize(
    "spec",
    [
        {"command": ["python", "/code/train.py"]},
        {"command": ["python", "train.py"], "pod": {"working_dir": "/code"}},
        {"command": ["python", "$(CODE)/train.py"], "env": {"CODE": "/code"}},
    ],
)
def test_checks_and_submit_look_for_a_script_in_the_folder_of_its_volume(here: Here, tmp_path: Path, spec: dict[str, Any]):
    spec |= {"volumes": [{"name": "code", "mount_path": "/code", "pvc": "claim"}]}
    plan = here.plan(**spec)
    (problem,) = [requirement.problem for requirement in here.backend.check_requirements(plan) if requirement.problem]
    assert "train.py` does not exist" in str(problem)
    with pytest.raises(Refused) as caught:
        here.submit(**spec)
    assert str(caught.value) == str(problem)
    claim = here.state / "volumes" / "claim"
    claim.mkdir(parents=True)
    (claim / "train.py").touch()
    assert not any(requirement.problem for requirement in here.backend.check_requirements(plan))
    assert here.backend.find_first_pod(plan).find_program() == launch_spec(plan, here.state).agents[0].argv[0]


def test_each_agent_sees_its_own_gpus(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine, "gpus", lambda: ("0", "1", "5", "7"))

    def seen(**spec: Any) -> list[str | None]:
        return [agent.env.get("CUDA_VISIBLE_DEVICES") for agent in launch_spec(here.plan("pass", **spec), tmp_path).agents]

    assert seen(resources={"gpus": 2}, nodes=2) == ["0,1", "5,7"]
    assert seen(nodes=2) == ["", ""]
    assert seen(processes_per_node="gpu") == [None]
    assert seen(env={"CUDA_VISIBLE_DEVICES": "3"}) == ["3"]


def test_gpus_are_those_of_cuda_visible_devices(monkeypatch: pytest.MonkeyPatch):
    for said, expected in (("2,3", ("2", "3")), ("", ()), ("-1", ()), ("GPU-8f1", ("GPU-8f1",))):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", said)
        machine.gpus.cache_clear()
        assert machine.gpus() == expected
    machine.gpus.cache_clear()


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (("torchrun", "train.py", "--lr", "1"), "train.py"),
        (("/venv/bin/python3.12", "-u", "src/train.py"), "src/train.py"),
        (("accelerate", "launch", "--num_processes", "2", "train.py", "other.py"), "train.py"),
        (("python", "-m", "package.train", "x.py"), ""),
        (("python", "-c", "print(1)"), ""),
        (("torchrun", "--no-python", "./run.sh", "x.py"), ""),
        (("bash", "x.py"), ""),
        (("torchrun", "--config=x.py", "train"), ""),
        ((), ""),
    ],
)
def test_the_script_of_a_command_line(argv, script):
    assert find_script(argv) == script
    assert find_job_script(argv) == script


@pytest.mark.parametrize(
    ("command", "script", "at_start"),
    [
        ("cd src; python train.py", "src/train.py", "src/train.py"),
        ("set -e\ncd /code\ncd a && exec torchrun train.py", "/code/a/train.py", "/code/a/train.py"),
        ("git clone x code && cd code && python train.py", "code/train.py", ""),
        ("cd $CODE && python train.py", "", ""),
        ("cd && python train.py", "", ""),
    ],
)
def test_the_script_of_a_shell_command(command, script, at_start):
    argv = ("bash", "-c", command)
    assert (find_job_script(argv), find_job_script(argv, at_start=True)) == (script, at_start)
    assert find_job_script(("uv", "run", "--directory", "x", "python", "a.py")) == ""
