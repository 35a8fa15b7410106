"""Programs in the shape of published ones: two commands from the script to a curve, a kill, and a manifest for the cluster."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.machine import Machine, wait_until

pytestmark = [pytest.mark.local, pytest.mark.trainer]

PUBLISHED = Path(__file__).parents[1] / "data" / "published"
IMAGE = "registry.example/train:1"
POD_RESTARTS = ("processes_per_node=1", "restarts.policy=OnFailure")
"""Settings of a job whose launcher starts no process again."""
FORK = tuple(f"--set=env.{word}" for word in ("PET_START_METHOD=fork", "PET_RUN_PATH=1", "PYTHONPATH=."))
"""Options with which torchrun forks its ranks, so that torch is imported once; a forked script needs its folder on the path."""
TORCHRUN = "torchrun --nnodes 2 --nproc-per-node 1 --max-restarts 3 "


@dataclass(frozen=True)
class Program:
    """One of `tests/data/published`, as its README would start it."""

    start: tuple[str, ...]
    """The command of kfjob that makes the spec."""
    submit: tuple[str, ...] = ()
    """Options of `kfjob submit`."""
    resumes: bool = True
    """It goes on from its checkpoint when its processes are started again."""


def torchrun(words: str, **more: Any) -> Program:
    return Program(("import", "torchrun", "--name", "job", TORCHRUN + words), **more)


def init(words: str, *settings: str, **more: Any) -> Program:
    submit = tuple(word for setting in settings for word in ("--set", setting))
    return Program(("init", "--yes", "--name", "job", "--nodes", "2", "--command", words), submit, **more)


PROGRAMS = {
    "ddp tutorial": torchrun("ddp_tutorial.py 7 1"),
    "mnist": torchrun("mnist.py --epochs 2 --save-model", resumes=False),
    "nanogpt": torchrun("nanogpt.py --init_from=auto --max_iters=8", submit=FORK),
    "nanochat": torchrun("-m nanochat_shape.base_train -- --num-iterations=8"),
    "accelerate under torchrun": torchrun("nlp_example.py --cpu"),
    "accelerate launch": init("accelerate launch nlp_example.py --cpu --num-epochs 9", "launcher=accelerate", *POD_RESTARTS),
    "transformers trainer": torchrun("sft.py 8"),
    "clm without a trainer": torchrun("clm.py --max_train_steps 8"),
    "cloud ddp": torchrun("aws_ddp.py --total_epochs 3"),
    "deepspeed under torchrun": torchrun("cifar_deepspeed.py --epochs 3 --deepspeed"),
    "deepspeed": init("deepspeed cifar_deepspeed.py --epochs 3", "launcher=deepspeed", *POD_RESTARTS),
    "pytorchjob": Program(("import", "pytorchjob", "pytorchjob.yaml")),
    "accelerate fsdp": Program(
        ("import", "accelerate", "--name", "job", "fsdp.yaml", "accelerate_fsdp.py"),
        ("--set", "restarts.policy=OnFailure", "--set", "resources.gpus=0"),
    ),
    "csv lines": torchrun("csv_lines.py"),
    "own spawn": init("python own_spawn.py --gpus 2", "launcher=python", *POD_RESTARTS),
}
SHORT = {"nanogpt"}
"""One that resumes."""


def list_programs() -> Iterator[Any]:
    for name in PROGRAMS:
        yield pytest.param(name, marks=[] if name in SHORT else [pytest.mark.long])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with all programs, where the commands run."""
    folder = tmp_path / "programs"
    shutil.copytree(PUBLISHED, folder)
    (folder / "hold").touch()
    return folder


@pytest.fixture
def machine(tmp_path: Path, folder: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path, cwd=folder)
    yield machine
    (folder / "hold").unlink(missing_ok=True)
    machine.run("stop", "job", "--no-archive")


def start(program: Program, machine: Machine, folder: Path) -> None:
    """Submit the program to two nodes, with two commands and without `progress:`."""
    spec = machine(*program.start)
    if program.start[0] == "import":
        (folder / "job.yaml").write_text(spec)
    assert "progress" not in yaml.safe_load((folder / "job.yaml").read_text())
    machine("submit", "job.yaml", *program.submit)


def read_status(machine: Machine) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(machine("status", "job", "-o", "json"))
    return status


def read_printed(folder: Path) -> dict[str, Any]:
    """Return what rank 0 wrote of its last line, and of the first one of its life."""
    with suppress(FileNotFoundError):
        printed: dict[str, Any] = json.loads((folder / "printed.json").read_text())
        return printed
    return {"held": False}


def read_progress(status: dict[str, Any], printed: dict[str, Any]) -> dict[str, Any]:
    """Return what the status says of the last line that rank 0 printed, and the pods that it names."""
    progress = status["progress"] or {}
    shown = {field: progress.get(field) for field in printed["last"]}
    return shown | {"pod": progress.get("pod"), "master": (status["master"] or {}).get("pod")}


def expect(printed: dict[str, Any]) -> Any:
    """Return the values of the last line that rank 0 printed, which are rounded there, and the pods to name."""
    numbers = {field: pytest.approx(value, rel=0.01) for field, value in printed["last"].items()}
    return numbers | {"pod": printed["pod"], "master": printed["pod"]}


def wait_for_progress(machine: Machine, printed: dict[str, Any]) -> dict[str, Any]:
    """Return the status, as soon as it shows the last line of rank 0."""
    with suppress(AssertionError):  # the caller's comparison shows what differs
        wait_until(lambda: read_progress(read_status(machine), printed) == expect(printed), patience=10)
    return read_status(machine)


@pytest.mark.parametrize("name", list(list_programs()))
def test_published_program(name: str, folder: Path, machine: Machine, record_property: Callable[[str, object], None]):
    program = PROGRAMS[name]
    start(program, machine, folder)
    wait_until(lambda: read_printed(folder)["held"])
    before = read_printed(folder)
    status = wait_for_progress(machine, before)
    record_property("while it runs", json.dumps(status))
    assert read_progress(status, before) == expect(before)

    if program.resumes:
        os.kill(before["pid"], signal.SIGKILL)
    (folder / "hold").unlink()
    assert machine("wait", "job") == "Succeeded\n"
    status, after = read_status(machine), read_printed(folder)
    record_property("at its end", json.dumps(status))
    assert read_progress(status, after) == expect(after)
    if program.resumes:
        assert after["first"] != before["first"]  # it went on from its checkpoint
        assert status["restarts"] or any(pod["restarts"] for pod in status["pods"])

    check_cluster(machine, program)


def check_cluster(machine: Machine, program: Program) -> None:
    """Check that the spec is rendered for a cluster, and that all that it lacks there is listed."""
    on_cluster = ("--backend", "kubernetes", "job.yaml", *program.submit)
    problems = json.loads(machine.run("validate", "-o", "json", *on_cluster).stdout)["problems"]
    missing = {problem["field"]: problem for problem in problems}
    assert ("image" in missing) is ("pytorchjob" not in program.start)
    assert any("the image must have" in problem["message"] for problem in problems)  # the script
    assert "volumes" in missing or any(problem["rule"] == "checkpoint-storage" for problem in problems)
    assert "resources" in missing or "fsdp.yaml" in program.start  # its processes are read as GPUs
    manifest = yaml.safe_load(machine("render", *on_cluster, "--set", f"image={IMAGE}"))
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    images = {part["template"]["spec"]["containers"][0]["image"] for part in replicas.values()}
    assert (manifest["kind"], images, sum(part["replicas"] for part in replicas.values())) == ("PyTorchJob", {IMAGE}, 2)
