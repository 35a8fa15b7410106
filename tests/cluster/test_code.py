"""A changed line of code on the cluster: `submit --code`, then `relaunch --code`, pulled and run by the kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from tests.cluster.facts import Space, needs_own_cluster

KFJOB = str(Path(sys.executable).with_name("kfjob"))
REGISTRY, ADDRESS = "registry.kfjob.test", "127.0.0.1:26500"  # as tests/cluster/harness/settings.sh has them
PROGRAM = """
import importlib.util, os, pathlib
print("this is {what}, old:", importlib.util.find_spec("old") is not None, flush=True)
pathlib.Path("written").write_text("by " + str(os.getuid()))  # the folder is still whose it was
print("wrote it", flush=True)
"""


@dataclass(frozen=True)
class Person:
    """Somebody with a folder of code, a spec, and a registry that this machine knows by another address."""

    folder: Path
    env: dict[str, str]

    def __call__(self, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([KFJOB, *argv], env=self.env, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, f"kfjob {' '.join(argv)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    @property
    def spec(self) -> str:
        return str(self.folder / "job.yaml")

    @property
    def src(self) -> str:
        return str(self.folder / "src")

    def write(self, what: str, **others: str) -> None:
        src = self.folder / "src"
        src.mkdir(exist_ok=True)
        for file in src.iterdir():
            file.unlink()
        for name, text in {"program": PROGRAM.replace("{what}", what), **others}.items():
            (src / f"{name}.py").write_text(text)

    def ran(self, job: str) -> tuple[str, str]:
        """The job's log, and the image that its pod ran, as the kubelet tells it."""
        self("wait", job, "--timeout", "180")
        log = self("logs", job, "--pod", f"{job}-worker-0").stdout
        return log, json.loads(self("status", job, "-o", "json").stdout)["phase"]


@pytest.fixture
def person(space: Space, tmp_path: Path) -> Person:
    needs_own_cluster("pushes to the cluster's own registry")
    certs = tmp_path / "certs.d" / REGISTRY
    certs.mkdir(parents=True)
    (certs / "hosts.toml").write_text(f'[host."http://{ADDRESS}"]\ncapabilities = ["pull", "resolve", "push"]\n')
    spec = {"image": space.facts.image, "command": "torchrun program.py", "volumes": [dict(v) for v in space.facts.volumes]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"name": "coded", **spec}))
    env = {key: value for key, value in os.environ.items() if not key.startswith("KFJOB_")} | {
        "KUBECONFIG": space.facts.kubeconfig,
        "KFJOB_NAMESPACE": space.name,
        "KFJOB_STATE": str(tmp_path / "state"),
        "KFJOB_REGISTRY_CERTS": str(tmp_path / "certs.d"),
        "HOME": str(tmp_path),
    }
    return Person(tmp_path, env)


def image_of(space: Space, job: str) -> tuple[str, str]:
    """(what the pod was told to run, what the kubelet says it is)."""
    argv = ["kubectl", "-n", space.name, "get", "pod", f"{job}-worker-0", "-o", "json"]
    done = subprocess.run(["scripts/cluster", *argv], capture_output=True, text=True, check=True)
    pod = json.loads(done.stdout)
    return pod["spec"]["containers"][0]["image"], pod["status"]["containerStatuses"][0]["imageID"]


def test_the_changed_line_is_what_runs(space: Space, person: Person):
    person.write("one", old="")
    person("submit", person.spec, "--code", person.src)
    log, phase = person.ran("coded")
    assert "this is one, old: True" in log
    assert "wrote it" in log
    assert phase == "Succeeded"
    told, runs = image_of(space, "coded")
    assert told.startswith(f"{space.facts.image.partition(':')[0]}:code-")
    assert runs.rpartition("@")[2] == told.rpartition("@")[2]

    person.write("two")  # and `old` is gone
    person("relaunch", "coded", "--code", person.src)
    log, _ = person.ran("coded")
    assert "this is two, old: False" in log
    second, _ = image_of(space, "coded")
    assert second != told

    person("relaunch", "coded")  # the recorded spec names that image
    log, _ = person.ran("coded")
    assert "this is two, old: False" in log
    assert image_of(space, "coded")[0] == second
    person("stop", "coded")


TEMPLATE = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: templated}
spec:
  elasticPolicy: {rdzvBackend: c10d, rdzvId: "${KFJOB_LAUNCH}"}
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers: [{name: pytorch, image: "${IMAGE_URI}", command: [python3, program.py]}]
"""


def test_the_changed_line_of_a_templates_job(space: Space, person: Person):
    template = person.folder / "fsdp.yaml"
    template.write_text(TEMPLATE)
    person.write("one", old="")
    person("submit", "--template", str(template), "--var", f"IMAGE_URI={space.facts.image}", "--code", person.src)
    log, phase = person.ran("templated")
    assert "this is one, old: True" in log
    assert phase == "Succeeded"
    first, runs = image_of(space, "templated")
    assert runs.rpartition("@")[2] == first.rpartition("@")[2]

    person.write("two")
    person("relaunch", "templated", "--code", person.src)
    log, _ = person.ran("templated")
    assert "this is two, old: False" in log
    second, _ = image_of(space, "templated")
    assert second != first

    person("relaunch", "templated")  # what is recorded names that image
    log, _ = person.ran("templated")
    assert "this is two, old: False" in log
    assert image_of(space, "templated")[0] == second
    person("stop", "templated")


def test_preflight_asks_the_registry_for_every_image(space: Space, person: Person):
    found = json.loads(person("preflight", person.spec, "-o", "json").stdout)
    assert any(line.startswith("image sha256:") for line in found["good"])
    image = space.facts.image.partition(":")[0]
    spec = yaml.safe_load(Path(person.spec).read_text()) | {
        "pod": {"init_containers": [{"name": "i", "image": f"{image}:absent"}]}
    }
    Path(person.spec).write_text(yaml.safe_dump(spec, sort_keys=False))
    found = json.loads(person("preflight", person.spec, "-o", "json", code=1).stdout)
    (problem,) = (one for one in found["problems"] if one["severity"] == "error")
    assert problem["title"] == f"image `{image}:absent` does not exist (init container `i`)"
    assert problem["path"] == "pod.init_containers.0"
    assert problem["line"]
    unasked = replace(person, env=person.env | {"KFJOB_IMAGE_CHECK": "0"})
    found = json.loads(unasked("preflight", person.spec, "-o", "json").stdout)
    assert any("`image_check` is off" in line for line in found["unchecked"])


def test_an_image_that_is_not_there_creates_nothing(space: Space, person: Person):
    image = space.facts.image.partition(":")[0]
    done = person("submit", person.spec, "--set", f"image={image}:absent", code=3)
    assert f"image `{image}:absent` does not exist" in done.stderr
    assert "coded" not in person("list").stdout
    person.write("three")
    (Path(person.src) / "out.py").symlink_to("/etc/passwd")
    done = person("submit", person.spec, "--code", person.src, code=1)
    assert "leads out of the folder" in done.stderr
    assert "coded" not in person("list").stdout
