"""Changed code on the cluster: `submit --code`, then `relaunch --code`; the kubelet pulls and runs it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from kfjob.cluster import requests
from tests.cluster.facts import Space, needs_own_cluster, script
from tests.kfjob_command import run_kfjob
from tests.pytorchjobs import KIND

PROGRAM = """
import importlib.util, os, pathlib
print("this is {version}, old:", importlib.util.find_spec("old") is not None, flush=True)
pathlib.Path("written").write_text("by " + str(os.getuid()))  # the folder keeps its owner
print("wrote it", flush=True)
"""


@dataclass(frozen=True)
class User:
    """A user with a code folder, a spec, and a registry that has another address on this machine."""

    folder: Path
    env: dict[str, str]

    def __call__(self, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        result = run_kfjob(argv, env=self.env, cwd=None, timeout=300)
        assert result.returncode == code, f"kfjob {' '.join(argv)} -> {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    @property
    def spec(self) -> str:
        return str(self.folder / "job.yaml")

    @property
    def src(self) -> str:
        return str(self.folder / "src")

    def write(self, version: str, **modules: str) -> None:
        src = self.folder / "src"
        src.mkdir(exist_ok=True)
        for file in src.iterdir():
            file.unlink()
        for name, text in {"program": PROGRAM.replace("{version}", version), **modules}.items():
            (src / f"{name}.py").write_text(text)

    def run_to_end(self, job: str) -> tuple[str, str]:
        """Wait for the job; return the log of worker 0 and the job's phase."""
        self("wait", job, "--timeout", "180")
        log = self("logs", job, "--pod", f"{job}-worker-0").stdout
        return log, json.loads(self("status", job, "-o", "json").stdout)["phase"]


@pytest.fixture
def user(space: Space, tmp_path: Path) -> User:
    needs_own_cluster("pushes to the cluster's own registry")
    variables = dict(word.split("=", 1) for word in shlex.split(script("env"))[1:])
    spec = {"image": space.facts.image, "command": "python3 program.py"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"name": "coded", **spec}))
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | {
        **variables,
        "KFJOB_NAMESPACE": space.name,
        "KFJOB_STATE": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    return User(tmp_path, env)


def image_of(space: Space, job: str) -> tuple[str, str]:
    """Return the image in the pod's spec, and the image ID that the kubelet reports."""
    pod = json.loads(script("kubectl", "-n", space.name, "get", "pod", f"{job}-worker-0", "-o", "json"))
    return pod["spec"]["containers"][0]["image"], pod["status"]["containerStatuses"][0]["imageID"]


def recorded_image(space: Space, job: str) -> str:
    """Return the image in the job's manifest, which is there before any pod."""
    manifest = space.client.call(requests.get_job(KIND, space.name, job))
    return str(manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"])


def test_changed_code_runs(space: Space, user: User):
    user.write("one", old="")
    user("submit", user.spec, "--code", user.src)
    log, phase = user.run_to_end("coded")
    assert "this is one, old: True" in log
    assert "wrote it" in log
    assert phase == "Succeeded"
    first, running = image_of(space, "coded")
    assert first.startswith(f"{space.facts.image.partition(':')[0]}:code-")
    assert running.rpartition("@")[2] == first.rpartition("@")[2]

    user.write("two")  # this removes `old`
    user("relaunch", "coded", "--code", user.src)
    log, _ = user.run_to_end("coded")
    assert "this is two, old: False" in log
    second, _ = image_of(space, "coded")
    assert second != first

    user("relaunch", "coded")  # the recorded spec has that image
    assert recorded_image(space, "coded") == second
    user("stop", "coded")


def test_preflight_checks_every_image(space: Space, user: User):
    report = json.loads(user("preflight", user.spec, "-o", "json").stdout)
    assert any(line.startswith("image sha256:") for line in report["good"])
    image = space.facts.image.partition(":")[0]
    spec = yaml.safe_load(Path(user.spec).read_text()) | {
        "pod": {"init_containers": [{"name": "i", "image": f"{image}:absent"}]}
    }
    Path(user.spec).write_text(yaml.safe_dump(spec, sort_keys=False))
    report = json.loads(user("preflight", user.spec, "-o", "json", code=1).stdout)
    (problem,) = (problem for problem in report["problems"] if problem["severity"] == "error")
    assert problem["title"] == f"image `{image}:absent` does not exist (init container `i`)"
    assert problem["path"] == "pod.init_containers.0"
    assert problem["line"]
    without_check = replace(user, env=user.env | {"KFJOB_IMAGE_CHECK": "0"})
    report = json.loads(without_check("preflight", user.spec, "-o", "json").stdout)
    assert any("`image_check` is off" in line for line in report["unchecked"])


def test_missing_image_creates_nothing(space: Space, user: User):
    image = space.facts.image.partition(":")[0]
    result = user("submit", user.spec, "--set", f"image={image}:absent", code=3)
    assert f"image `{image}:absent` does not exist" in result.stderr
    assert "coded" not in user("list").stdout
    user.write("three")
    (Path(user.src) / "out.py").symlink_to("/etc/passwd")
    result = user("submit", user.spec, "--code", user.src, code=1)
    assert "leads out of the folder" in result.stderr
    assert "coded" not in user("list").stdout
