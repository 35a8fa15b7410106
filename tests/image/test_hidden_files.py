"""Volumes over the program of a job: submit refuses them, with the real image of a real registry."""

# ruff: noqa: F811 - fixtures of another folder's tests, imported by their names
from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.image.images import push_image
from tests.image.registries import RealRegistry
from tests.unit.api.conftest import Shell
from tests.unit.cli.conftest import cluster, kfjob  # noqa: F401
from tests.unit.cli.object_server import ObjectServer
from tests.unit.conftest import here  # noqa: F401

SPEC = """name: mine
image: {image}
command: torchrun train.py
volumes:
  - {{name: other, mount_path: /other, empty_dir: true}}
  - {{name: work, mount_path: {folder}, pvc: claim}}
"""
TEMPLATE = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: templated}
spec:
  elasticPolicy: {rdzvBackend: c10d, rdzvId: "${KFJOB_LAUNCH}"}
  pytorchReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          volumes: [{name: work, persistentVolumeClaim: {claimName: claim}}]
          containers:
            - name: pytorch
              image: "${IMAGE_URI}"
              command: [torchrun, train.py]
              volumeMounts:
                - {name: work, mountPath: /workspace}
"""


@pytest.fixture
def base(plain: RealRegistry, here: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("KFJOB_IMAGE_CHECK", "1")
    settings = {"Env": ["A=b", "PATH=/usr/local/nvidia/bin:/opt/conda/bin:/bin"], "Entrypoint": ["/opt/start.sh"]}
    with plain.open() as registry:
        push_image(registry, name, "base", "oci", **settings)
        push_image(registry, name, "other", "oci", WorkingDir="/work/space")
    (here / "src" / "data").mkdir(parents=True)
    (here / "src" / "train.py").write_text("1")
    (here / "src" / "data" / "text.txt").write_text("1")
    (here / "t.yaml").write_text(TEMPLATE)
    return f"{plain.host}/{name}:base"


def write(here: Path, image: str, folder: str, more: str = "") -> None:
    (here / "job.yaml").write_text(SPEC.format(image=image, folder=folder) + more)


@pytest.mark.parametrize("folder", ["/workspace", "/"])
@pytest.mark.parametrize("dry_run", [(), ("--dry-run", "client")])
def test_code_below_a_volume_is_refused(  # noqa: PLR0917 - fixtures
    cluster: ObjectServer, kfjob: Shell, base: str, here: Path, folder: str, dry_run: tuple[str, ...]
):
    write(here, base, folder, "lint: {ignore: []}\n")
    assert kfjob("submit", "job.yaml", "--code", "src", *dry_run) == 2
    assert "--> job.yaml:6:30 (volumes.1.mount_path)" in kfjob.err
    assert cluster.objects == {}
    if folder == "/workspace":
        assert "error: volume `work` at `/workspace` hides the code of `--code`: it is in `/workspace`" in kfjob.err
        assert "hint: mount the volume at another path, for example `/data`, or add the code to a folder" in kfjob.err
        assert "`--code DIR --workdir /code`" in kfjob.err
        assert f"`/workspace` is the working directory of image `{base}` (job.yaml:2:8 (image))" in kfjob.err


@pytest.mark.parametrize(
    ("folder", "options"), [("/data", ()), ("/workspace", ("--workdir", "/code")), ("/workspace/checkpoints", ())]
)
def test_code_beside_the_volumes_runs(  # noqa: PLR0917 - fixtures
    cluster: ObjectServer, kfjob: Shell, base: str, here: Path, folder: str, options: tuple[str, ...]
):
    write(here, base, folder)
    assert kfjob("submit", "job.yaml", "--code", "src", *options) == 0, kfjob.err
    assert ("default", "pytorchjobs", "mine") in cluster.objects


def test_a_volume_over_other_files_of_the_code_is_a_warning(cluster: ObjectServer, kfjob: Shell, base: str, here: Path):
    write(here, base, "/workspace/data")
    assert kfjob("submit", "job.yaml", "--code", "src") == 0
    assert "warning: volume `work` at `/workspace/data` hides `data` and more of the code of `--code`" in kfjob.err or (
        "warning: volume `work` at `/workspace/data` hides `data/text.txt` of the code of `--code`" in kfjob.err
    )


def test_a_working_directory_beside_the_code_is_refused(cluster: ObjectServer, kfjob: Shell, base: str, here: Path):
    write(here, base, "/data", "pod: {working_dir: /data}\n")
    assert kfjob("submit", "job.yaml", "--code", "src") == 2
    assert "error: the pods start `/data/train.py`, and the code of `--code` is in `/workspace`" in kfjob.err
    assert "--> job.yaml:7:20 (pod.working_dir)" in kfjob.err


def test_later_launches_know_the_code_in_the_image(cluster: ObjectServer, kfjob: Shell, base: str, here: Path):
    write(here, base, "/data")
    assert kfjob("submit", "job.yaml", "--code", "src", "--dry-run", "client", "-o", "json") == 0
    (job,) = json.loads(kfjob.out)["objects"]
    image = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"]
    assert kfjob("submit", "job.yaml", "--code", "src") == 0
    assert kfjob("stop", "mine") == 0
    write(here, image, "/workspace")
    assert kfjob("submit", "job.yaml") == 2
    assert f"hides the code in image `{image}`, which `--code` has added: it is in `/workspace`" in kfjob.err
    write(here, image, "/workspace", "lint: {ignore: [volume-hides-program]}\n")
    assert kfjob("submit", "job.yaml") == 0, kfjob.err


def test_a_template_is_refused_at_its_mount(cluster: ObjectServer, kfjob: Shell, base: str):
    template = ("--template", "t.yaml", "--var", f"IMAGE_URI={base}")
    assert kfjob("submit", *template, "--code", "src") == 2
    assert "error: volume `work` at `/workspace` hides the code of `--code`" in kfjob.err
    assert "--> t.yaml:17:43 (" in kfjob.err
    assert kfjob("validate", *template) == 0
    assert "warning: volume `work` hides `/workspace` of the image" in kfjob.err
    assert "--> t.yaml:17:43 (" in kfjob.err
    assert kfjob("submit", *template, "--ignore", "volume-hides-program") == 0, kfjob.err
    assert cluster.objects


@pytest.mark.parametrize(
    ("folder", "more", "message"),
    [
        ("/work", "", "warning: volume `work` at `/work` hides `/work/space`, the working directory of image"),
        ("/opt/conda", "", "warning: volume `work` at `/opt/conda` hides the programs in `/opt/conda/bin` of image"),
        ("/opt", "command: []\nargs: [a]\n", "error: volume `work` at `/opt` hides `/opt/start.sh`, the entry point of image"),
    ],
)
def test_files_of_the_image_below_a_volume(  # noqa: PLR0917 - fixtures
    cluster: ObjectServer, kfjob: Shell, base: str, here: Path, folder: str, more: str, message: str
):
    write(here, base.replace(":base", ":other") if folder == "/work" else base, folder)
    if more:
        text = (here / "job.yaml").read_text()
        (here / "job.yaml").write_text(text.replace("command: torchrun train.py\n", more))
    assert kfjob("submit", "job.yaml") == (2 if message.startswith("error") else 0), kfjob.err
    assert message in kfjob.err


def test_the_drivers_of_the_node_hide_nothing(cluster: ObjectServer, kfjob: Shell, base: str, here: Path):
    write(here, base, "/usr/local/nvidia")
    assert kfjob("submit", "job.yaml") == 0
    assert "hides" not in kfjob.err
