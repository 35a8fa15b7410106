"""`--code` and `--build` with templates and dry runs: a real registry, a real builder and an API server that stores objects."""

# ruff: noqa: F811 - fixtures of another folder's tests, imported by their names
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.image.builders import Buildah, context
from tests.image.images import push_image
from tests.image.registries import RealRegistry, is_absent
from tests.unit.api.conftest import Shell
from tests.unit.cli.conftest import cluster, kfjob  # noqa: F401
from tests.unit.cli.object_server import ObjectServer
from tests.unit.conftest import here  # noqa: F401

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
          initContainers: [{name: fetch, image: "${IMAGE_URI}"}, {name: other, image: "a:1"}]
          containers: [{name: pytorch, image: "${IMAGE_URI}", command: [train]}]
"""
MASTER = "    Master: {template: {spec: {containers: [{name: pytorch, image: b}]}}}\n    Worker:"


@pytest.fixture
def base(plain: RealRegistry, here: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(here))
    with plain.open() as registry:
        push_image(registry, name, "base", "oci")
    image = f"{plain.host}/{name}:base"
    (here / "src").mkdir()
    (here / "src" / "train.py").write_text(os.urandom(4).hex())
    (here / "t.yaml").write_text(TEMPLATE)
    (here / "job.yaml").write_text(f"name: train\nimage: {image}\ncommand: python train.py\n")
    return image


def said(kfjob: Shell, *argv: str) -> dict[str, Any]:
    assert kfjob("submit", *argv, "-o", "json") == 0, kfjob.err
    found: dict[str, Any] = json.loads(kfjob.out)
    return found


def containers(job: dict[str, Any], key: str = "containers") -> list[str]:
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return [one["image"] for one in pod[key]]


def in_registry(registry: RealRegistry, image: str) -> bool:
    repository, _, tag = image.partition("@")[0].partition("/")[2].partition(":")
    return not is_absent(registry, f"{repository}/manifests/{tag}")


@pytest.mark.parametrize("how", ["client", "server"])
def test_a_dry_run_names_the_image_that_a_submit_would_push(
    plain: RealRegistry, cluster: ObjectServer, kfjob: Shell, base: str, how: str
):
    (job,) = said(kfjob, "job.yaml", "--code", "src", "--dry-run", how)["objects"]
    (image,) = containers(job)
    assert f"note: code: would add 1 file to `{base}`: `{image}`" in kfjob.err
    assert not in_registry(plain, image)
    assert cluster.objects == {}
    assert kfjob("submit", "job.yaml", "--code", "src") == 0
    assert containers(cluster.objects["default", "pytorchjobs", "train"]) == [image]
    assert in_registry(plain, image)
    assert kfjob("submit", "job.yaml", "--code", "src", "--dry-run", "client") == 0
    assert f"note: code: the registry has this code already: `{image}`" in kfjob.err


def test_code_is_added_to_the_image_of_a_template(
    plain: RealRegistry, cluster: ObjectServer, kfjob: Shell, base: str, here: Path
):
    template = ("--template", "t.yaml", "--var", f"IMAGE_URI={base}", "--code", "src")
    (job,) = said(kfjob, *template, "--dry-run", "client")["objects"]
    (image,) = containers(job)
    assert image.startswith(f"{base.removesuffix('base')}code-")
    assert not in_registry(plain, image)
    assert cluster.objects == {}
    assert kfjob("submit", *template) == 0
    kept = cluster.objects["default", "pytorchjobs", "templated"]
    assert containers(kept) == [image]
    assert containers(kept, "initContainers") == [image, "a:1"]
    (recorded,) = json.loads(kept["metadata"]["annotations"]["kfjob.dev/manifest"])
    assert containers(recorded) == [image]
    assert in_registry(plain, image)

    (here / "src" / "train.py").write_text("changed")
    assert kfjob("relaunch", "templated", "--code", "src") == 0
    (second,) = containers(cluster.objects["default", "pytorchjobs", "templated"])
    assert second != image
    assert in_registry(plain, second)
    assert kfjob("relaunch", "templated") == 0  # the recorded manifest has that image
    assert containers(cluster.objects["default", "pytorchjobs", "templated"]) == [second]


def test_template_with_several_images_is_refused(cluster: ObjectServer, kfjob: Shell, base: str, here: Path):
    policy = '  elasticPolicy: {rdzvBackend: c10d, rdzvId: "${KFJOB_LAUNCH}"}\n'
    (here / "t.yaml").write_text(TEMPLATE.replace("    Worker:", MASTER).replace(policy, ""))
    assert kfjob("submit", "--template", "t.yaml", "--var", f"IMAGE_URI={base}", "--code", "src") == 2
    assert f"images of the training containers: `{base}`, `b`" in kfjob.err
    assert cluster.objects == {}


def test_a_build_for_a_template_and_its_dry_run(  # noqa: PLR0917 - fixtures
    plain: RealRegistry, cluster: ObjectServer, kfjob: Shell, base: str, building: Buildah, here: Path
):
    context(here / "built")
    argv = ["--template", "t.yaml", "--var", f"IMAGE_URI={base}", "--build", "built", "--builder", "buildah"]
    (job,) = said(kfjob, *argv, "--dry-run", "client")["objects"]
    (image,) = containers(job)
    assert f"note: image: would build and push `{image}`" in kfjob.err
    assert not in_registry(plain, image)
    assert kfjob("submit", *argv, "--code", "src", "--dry-run", "client") == 2
    assert "an image that is not built yet" in kfjob.err
    assert kfjob("submit", *argv) == 0
    (ran,) = containers(cluster.objects["default", "pytorchjobs", "templated"])
    assert ran.startswith(f"{image}@sha256:")
    assert containers(said(kfjob, *argv, "--dry-run", "client")["objects"][0]) == [ran]
    assert f"note: image: the registry has `{ran}`" in kfjob.err
