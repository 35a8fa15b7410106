"""examples/llama2-eks on the real cluster: the lines of its README, from the Dockerfile to the resumed job.

moto mocks the ECR API, and a real registry holds the image under its ECR name (see test_image.py). The copy of the example has
the cluster's torch as a volume, and in the first launch a delay in all pods but the second, which so joins the rendezvous
first. The example has three workers, and the reference eight; the short version has two. It is a PyTorchJob, and one copy of it
a TrainJob.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.facts import ROOT, Space, script, until
from tests.cluster.storage import shared_claim
from tests.cluster.test_image import User, base_image, pip_secrets, user  # noqa: F401 - a fixture
from tests.image.aws import HOST
from tests.kfjob_command import KFJOB, run_kfjob
from tests.readme_lines import read_lines

LINES = read_lines("llama2-eks")
BUILD = ("--build-arg", "DEPENDENCIES=none", "--build-arg", "TORCH=none", "--builder", "buildah")
DELAY = 'case "$HOSTNAME" in {}-1) ;; *) [ -e {} ] || sleep {} ;; esac'


@pytest.fixture(scope="module")
def claim(space: Space) -> Iterator[None]:
    with shared_claim(space, "fsx"):
        yield


@dataclass(frozen=True)
class Case:
    """The kind of the job, and its number of workers."""

    target: str
    workers: int

    @property
    def pods(self) -> str:
        """Return the beginning of the names of the pods."""
        return "fsdp-worker" if self.target == "pytorchjob" else "fsdp-node-0"


CASES = [
    pytest.param(Case("pytorchjob", 2), marks=pytest.mark.timeout(900)),
    pytest.param(Case("pytorchjob", 3), marks=[pytest.mark.timeout(1800), pytest.mark.long]),
    pytest.param(Case("pytorchjob", 8), marks=[pytest.mark.timeout(2400), pytest.mark.long]),  # on two processors
    pytest.param(Case("trainjob", 3), marks=[pytest.mark.timeout(1800), pytest.mark.long]),  # builds Trainer
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case.target}-{case.workers}")
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    if case.target == "trainjob":
        script("trainer", "up")
    return case


@pytest.fixture
def folder(space: Space, user: User, claim: None, case: Case) -> Path:  # noqa: F811
    """Return a copy of the example for this cluster, with checkpoints of its own."""
    own = f"{case.target}-{case.workers}"
    checkpoints = f"/data/{space.name}-{own}"
    folder = user.folder / own / "llama2-eks"
    shutil.copytree(ROOT / "examples" / "llama2-eks", folder)
    volumes = "".join(f"  - {json.dumps(dict(volume))}\n" for volume in space.facts.volumes)
    for name in ("job.yaml", "text.yaml"):
        text = (folder / name).read_text().replace("pvc: fsx}\n", f"pvc: fsx}}\n{volumes}")
        (folder / name).write_text(text.replace("/data/checkpoints", checkpoints))
    values = (folder / "fsdp.env").read_text()
    (folder / "fsdp.env").write_text(values.replace("NUM_NODES=3", f"NUM_NODES={case.workers}"))
    delay = DELAY.format(case.pods, checkpoints, 3 * max(case.workers, 3))
    mounts = [{"name": "fsx", "mountPath": "/data"}]
    container = {"name": "delay", "image": "${IMAGE_URI}", "command": ["sh", "-c", delay], "volumeMounts": mounts}
    with (folder / "job.yaml").open("a") as file:
        file.write(f"  log_every: 1\npod: {json.dumps({'init_containers': [container]})}\nmake_pull_secret: true\n")
        file.write(f"target: {case.target}\n")
    with (folder / "text.yaml").open("a") as file:
        file.write("make_pull_secret: true\n")
    return folder


@pytest.fixture
def type_line(folder: Path, user: User, space: Space) -> Callable[..., str]:  # noqa: F811
    """Return a function that runs a line of the README with more options."""

    def run(line: str, *options: str) -> str:
        env = user.env | {"KFJOB_ETCD_IMAGE": space.facts.etcd_image}
        argv = [*shlex.split(line.replace("../..", str(ROOT)))[1:], *options]
        result = run_kfjob(argv, env=env, cwd=folder, timeout=1000)
        assert result.returncode == 0 or line == "kfjob doctor", f"{line}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    return run


def read_batches(log: str) -> list[int]:
    return [int(number) for number in re.findall(r"\] Batch (\d+) Loss: ", log)]


def test_all_steps_of_the_reference(folder: Path, user: User, case: Case, type_line: Callable[..., str]):  # noqa: F811
    lines = iter(LINES)

    def type_next(start: str, *options: str) -> str:
        """Run the next line of the README, which begins like this."""
        line = next(lines)
        assert line.startswith(start)
        return type_line(line, *options)

    assert "operator" in type_next("kfjob doctor")
    image = type_next("kfjob push-image", *BUILD, "--base-image", base_image(), *pip_secrets()).strip()
    assert image.startswith(f"{HOST}/fsdp:pytorch2.2@sha256:")
    values = (folder / "fsdp.env").read_text()
    (folder / "fsdp.env").write_text(re.sub(r"IMAGE_URI=.*", f"IMAGE_URI={image}", values))
    type_next("kfjob submit text.yaml")

    type_next("kfjob submit job.yaml")
    table = type_next("kfjob status")
    names = [line.split()[0] for line in table.splitlines() if line.startswith("fsdp-")]
    expected = ["fsdp-etcd", *(f"{case.pods}-{index}" for index in range(case.workers))]
    assert [re.sub(r"(-node-0-\d+)-[a-z0-9]{5}$", r"\1", name) for name in names] == expected
    assert f"{case.pods}-1" in type_next("kfjob master").splitlines()[0]
    until(lambda: "master_addr=" in user("logs", "fsdp", "--agents").stdout)  # the first to join is known earlier
    assert f"master_addr={case.pods}-1" in type_next("kfjob logs fsdp --agents")

    follow = next(lines)
    assert follow == "kfjob logs fsdp -f"
    with subprocess.Popen([KFJOB, *follow.split()[1:]], env=user.env, cwd=folder, stdout=subprocess.PIPE, text=True) as log:
        assert log.stdout
        batches = (numbers[0] for line in log.stdout if (numbers := read_batches(line)))
        newest = next((number for number in batches if number >= 3), 0)
        assert newest, user("diagnose", "fsdp").stdout
        type_next("kfjob relaunch")  # kills the running job
        log.kill()
    assert type_next("kfjob wait") == "Succeeded\n"
    second = user("logs", "fsdp").stdout
    (resumed,) = set(re.findall(r"\] Resume step-(\d+)", second))
    assert newest <= int(resumed) < 300
    assert read_batches(second) == list(range(int(resumed) + 1, 301))
    status = json.loads(user("status", "fsdp", "-o", "json").stdout)
    assert (status["phase"], status["store"]["pod"], status["store"]["phase"]) == ("Succeeded", "fsdp-etcd", "Running")

    type_next("kfjob submit job.yaml")  # a Completed job gives its name
    third = user("logs", "fsdp").stdout
    assert "] Resume step-000300" in third
    assert read_batches(third) == list(range(301, 311))
    assert type_next("kfjob stop") == "fsdp\n"
    archived = user("status", "fsdp").stdout
    assert "fsdp-etcd" in archived  # from the archive
    if case.workers > 2:  # test_reference_template.py always submits again after a stop
        check_launch_after_stop(user, type_line)
    manifest = type_next("kfjob render llama2-7b.yaml")
    assert "replicas: 8" in manifest
    assert "FI_EFA_USE_DEVICE_RDMA" in manifest
    assert next(lines, None) is None


def check_launch_after_stop(user: User, type_line: Callable[..., str]) -> None:  # noqa: F811
    """Check that the job of 310 steps goes on to 320 after it was stopped when it was Completed."""
    (again,) = [line.replace("=310", "=320") for line in LINES if "MAX_STEPS=310" in line]
    type_line(again)
    assert read_batches(user("logs", "fsdp").stdout) == list(range(311, 321))
    assert user("stop", "fsdp").stdout == "fsdp\n"
