"""The project's Dockerfile, built by `push-image` on the cluster's base image: what comes of it, and what of the base stays."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kfjob import ImageSpec
from kfjob.api.images.push_image import PushResult, build_and_push
from kfjob.errors import Refused
from tests.cluster.facts import ROOT, needs_own_cluster
from tests.cluster.test_image import CLUSTER_REGISTRY, base_image, pip_secrets
from tests.image.builders import Buildah, buildah
from tests.image.registries import RealRegistry, manifest_of, real_registry

STAND_IN = """__version__ = "99.0"
class version: cuda = "13.0"
class cuda:
    device_count = staticmethod(lambda: 0)
    class nccl: version = staticmethod(lambda: (2, 30, 7))
"""
"""torch's place in the requirements: its wheels are gigabytes, and whether one is installed is not up to what is in it."""
MAKE = """#!/bin/sh
echo "$@ NCCL_HOME=$NCCL_HOME" >/opt/nccl-tests/told
"""


@dataclass(frozen=True)
class Workshop:
    """A checkout whose requirements are few, a builder, a registry, and a place from which files can be fetched."""

    folder: Path
    builder: Buildah
    registry: RealRegistry
    files: Path
    url: str

    @property
    def src(self) -> Path:
        return self.folder / "src"

    def built(self, base: str, **more: Any) -> PushResult:
        secrets = dict(one.removeprefix("id=").split(",src=") for one in pip_secrets() if one != "--secret")
        said = {"context": str(self.src), "to": f"{self.registry.host}/made", "builder": str(self.builder.program)}
        return build_and_push(ImageSpec.model_validate(said | {"base_image": base, "secrets": secrets} | more))

    def buildah(self, *argv: str, code: int = 0) -> str:
        done = subprocess.run([self.builder.program, *argv], capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == code, done.stdout + done.stderr[-3000:]
        return done.stdout

    def inside(self, outcome: PushResult, *argv: str, code: int = 0) -> str:
        container = self.buildah("from", str(outcome.ref.with_tag(outcome.ref.tag))).strip()
        return self.buildah("run", container, "--", *argv, code=code)

    def config(self, outcome: PushResult) -> dict[str, Any]:
        manifest: Any = manifest_of(self.registry, outcome.ref.repository, outcome.ref.digest)
        found: dict[str, Any] = json.loads(self.registry.checked_blob(outcome.ref.repository, manifest["config"]["digest"]))
        return found

    def layers(self, outcome: PushResult) -> list[str]:
        manifest: Any = manifest_of(self.registry, outcome.ref.repository, outcome.ref.digest)
        return [layer["digest"] for layer in manifest["layers"]]


def requirements(*wanted: str) -> str:
    """Those lines of the trainer's requirements, with their hashes."""
    text = (ROOT / "requirements" / "trainer.txt").read_text()
    entries = re.findall(r"^[a-z].*\n(?:[ ].*\n)*", text, re.MULTILINE)
    return "".join(entry for entry in entries if re.match(rf"({'|'.join(wanted)})==", entry))


def torch_wheel(folder: Path) -> str:
    """Its name and hash, as a requirement after `@ URL/`."""
    file = folder / "torch-99.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("torch/__init__.py", STAND_IN)
        wheel.writestr("torch-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
        wheel.writestr("torch-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("torch-99.0.dist-info/RECORD", "")
    return f"{file.name} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    needs_own_cluster("builds on the cluster's base image")
    folder = tmp_path_factory.mktemp("workshop")
    src, files = folder / "src", folder / "files"
    for made in (src / "requirements", files, folder / "registry"):
        made.mkdir(parents=True)
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "requirements/build.txt"):
        shutil.copy(ROOT / name, src / name)
    shutil.copytree(ROOT / "kfjob", src / "kfjob", ignore=shutil.ignore_patterns("__pycache__"))
    engine = buildah(folder / "buildah")
    served = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(files))
    with (
        real_registry(folder / "registry") as registry,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        conf = folder / "registries.conf"
        hosts = (CLUSTER_REGISTRY, registry.host)
        conf.write_text("".join(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n' for host in hosts))
        for name, value in (engine.environment | {"CONTAINERS_REGISTRIES_CONF": str(conf)}).items():
            patch.setenv(name, value)
        url = f"http://127.0.0.1:{server.server_port}"
        (src / "requirements" / "trainer.txt").write_text(f"{requirements('click')}torch @ {url}/{torch_wheel(files)}\n")
        for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"]):
            subprocess.run(["git", "-C", str(src), *words], check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"})
        yield Workshop(folder, engine, registry, files, url)
        server.shutdown()


def test_torch_is_installed_where_the_base_has_none(workshop: Workshop):
    made = workshop.built(base_image())
    doctor = ("kfjob", "doctor", "--in-image", "--require")
    said = workshop.inside(made, *doctor, "torch").splitlines()
    assert "ok  torch         99.0" in said
    assert "ok  cuda          13.0, no GPU in sight here" in said
    assert "ok  nccl          2.30.7" in said
    workshop.inside(made, *doctor, "efa", code=1)
    assert workshop.inside(made, "sh", "-c", "id -un; pwd; touch here") == "kfjob\n/workspace\n"
    config = workshop.config(made)
    assert config["config"]["User"] == "kfjob"
    labels = config["config"]["Labels"]
    head = subprocess.run(["git", "-C", str(workshop.src), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert labels["org.opencontainers.image.revision"] == head.stdout.strip()
    assert labels["org.opencontainers.image.created"].endswith("Z")
    assert labels["dev.kfjob.version"] == labels["org.opencontainers.image.version"] == "0.1.0"


def test_torch_is_left_out(workshop: Workshop):
    made = workshop.built(base_image(), build_args={"TORCH": "none"})
    components = json.loads(workshop.inside(made, "kfjob", "doctor", "--in-image", "-o", "json"))["components"]
    assert {component["name"]: component["state"] for component in components}["torch"] == "missing"
    workshop.inside(made, "kfjob", "doctor", "--in-image", "--require", "torch", code=1)


def test_the_torch_of_the_base_stays(workshop: Workshop):
    """pip would replace it, if it were asked for one."""
    base = workshop.folder / "base"
    base.mkdir()
    site = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
    metadata = "Metadata-Version: 2.1\\nName: torch\\nVersion: 9.9\\n"
    made = f"d={site}; mkdir -p $d/torch $d/torch-9.9.dist-info; echo '__version__ = \"9.9\"' >$d/torch/__init__.py"
    (base / "Dockerfile").write_text(
        f"FROM {base_image()}\nRUN {made}; printf '{metadata}' >$d/torch-9.9.dist-info/METADATA; "
        "printf pip >$d/torch-9.9.dist-info/INSTALLER; touch $d/torch-9.9.dist-info/RECORD\n"
    )
    with_torch = workshop.built("", context=str(base), base_image=None)
    asked = workshop.src / "requirements" / "trainer.txt"
    few = asked.read_text()
    asked.write_text(few + (cuda := requirements("triton", "nvidia-[a-z0-9-]+", "cuda-[a-z]+")))
    assert "nvidia-nccl" in cuda
    try:
        found = workshop.built(str(with_torch.ref))
    finally:
        asked.write_text(few)
    assert workshop.inside(found, "python3", "-c", "import torch, kfjob, click; print(torch.__version__)") == "9.9\n"
    installed = json.loads(workshop.inside(found, "python3", "-m", "pip", "list", "--format=json"))
    assert not [one["name"] for one in installed if one["name"].startswith(("nvidia", "triton", "cuda"))]


def test_a_change_of_code_leaves_the_dependencies(workshop: Workshop):
    first = workshop.built(base_image())
    marker = workshop.src / "kfjob" / "added.py"
    marker.write_text("")
    try:
        second = workshop.built(base_image())
    finally:
        marker.unlink()
    before, after = workshop.layers(first), workshop.layers(second)
    same = sum(one == other for one, other in zip(before, after, strict=True))
    commands = [one["created_by"] for one in workshop.config(second)["history"] if not one.get("empty_layer")]
    (dependencies,) = (number for number, command in enumerate(commands) if "require-hashes" in command)
    (code,) = (number for number, command in enumerate(commands) if "--no-index" in command)
    assert dependencies < same <= code
    assert before[:same] == after[:same]


def test_the_target_nccl_tests(workshop: Workshop):
    """As far as it goes without CUDA: fetched, checked, unpacked, and `make` told where everything is. Both are stand-ins."""
    base = workshop.folder / "make"
    base.mkdir()
    (base / "make").write_text(MAKE)
    (base / "make").chmod(0o755)
    (base / "Dockerfile").write_text(f"FROM {base_image()}\nCOPY make /usr/local/bin/make\nRUN mkdir -p /opt/mpi\n")
    with_make = str(workshop.built("", context=str(base), base_image=None).ref)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("nccl-tests-2/Makefile"))
    (workshop.files / "sources.tar.gz").write_bytes(out.getvalue())
    args = {"TORCH": "none", "NCCL_TESTS_URL": f"{workshop.url}/sources.tar.gz", "NCCL_HOME": "/opt/nccl"}
    with pytest.raises(Refused, match="the build failed") as caught:
        workshop.built(with_make, target="nccl-tests", build_args=args)
    assert "did NOT match" in str(caught.value.cause)
    args["NCCL_TESTS_SHA256"] = hashlib.sha256(out.getvalue()).hexdigest()
    for mpi, told in (("/nowhere", "MPI=0 MPI_HOME=/nowhere"), ("/opt/mpi", "MPI=1 MPI_HOME=/opt/mpi")):
        made = workshop.built(with_make, target="nccl-tests", build_args=args | {"MPI_HOME": mpi})
        said = workshop.inside(made, "cat", "/opt/nccl-tests/told")
        assert f"{told} CUDA_HOME=/usr/local/cuda NCCL_HOME=/opt/nccl" in said
    assert workshop.inside(made, "id", "-un") == "kfjob\n"
