"""`push-image` builds the project's Dockerfile on the cluster's base image: its content, and what stays of the base."""

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
from kfjob.base.errors import Refused
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
echo "$@ NCCL_HOME=$NCCL_HOME" >/opt/nccl-tests/arguments
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout with few requirements, and a builder, a registry and a file server for it."""

    folder: Path
    builder: Buildah
    registry: RealRegistry
    files: Path
    url: str

    @property
    def src(self) -> Path:
        return self.folder / "src"

    def build(self, base: str, **fields: Any) -> PushResult:
        secrets = dict(option.removeprefix("id=").split(",src=") for option in pip_secrets() if option != "--secret")
        spec = {"context": str(self.src), "to": f"{self.registry.host}/made", "builder": str(self.builder.program)}
        return build_and_push(ImageSpec.model_validate(spec | {"base_image": base, "secrets": secrets} | fields))

    def buildah(self, *argv: str, code: int = 0) -> str:
        result = subprocess.run([self.builder.program, *argv], capture_output=True, text=True, timeout=400, check=False)
        assert result.returncode == code, result.stdout + result.stderr[-3000:]
        return result.stdout

    def run_in(self, outcome: PushResult, *argv: str, code: int = 0) -> str:
        container = self.buildah("from", str(outcome.ref.with_tag(outcome.ref.tag))).strip()
        return self.buildah("run", container, "--", *argv, code=code)

    def config(self, outcome: PushResult) -> dict[str, Any]:
        manifest: Any = manifest_of(self.registry, outcome.ref.repository, outcome.ref.digest)
        config: dict[str, Any] = json.loads(self.registry.checked_blob(outcome.ref.repository, manifest["config"]["digest"]))
        return config

    def layers(self, outcome: PushResult) -> list[str]:
        manifest: Any = manifest_of(self.registry, outcome.ref.repository, outcome.ref.digest)
        return [layer["digest"] for layer in manifest["layers"]]


def requirements(*names: str) -> str:
    """Return the entries of the trainer's requirements with these names, with their hashes."""
    text = (ROOT / "requirements" / "trainer.txt").read_text()
    entries = re.findall(r"^[a-z].*\n(?:[ ].*\n)*", text, re.MULTILINE)
    return "".join(entry for entry in entries if re.match(rf"({'|'.join(names)})==", entry))


def torch_wheel(folder: Path) -> str:
    """Write a wheel for torch; return its name and hash for a requirement `torch @ URL/…`."""
    file = folder / "torch-99.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("torch/__init__.py", STAND_IN)
        wheel.writestr("torch-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 99.0\n")
        wheel.writestr("torch-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("torch-99.0.dist-info/RECORD", "")
    return f"{file.name} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    needs_own_cluster("builds on the cluster's base image")
    folder = tmp_path_factory.mktemp("checkout")
    src, files = folder / "src", folder / "files"
    for directory in (src / "requirements", files, folder / "registry"):
        directory.mkdir(parents=True)
    for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "requirements/build.txt"):
        shutil.copy(ROOT / name, src / name)
    shutil.copytree(ROOT / "kfjob", src / "kfjob", ignore=shutil.ignore_patterns("__pycache__"))
    engine = buildah(folder / "buildah")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(files))
    with (
        real_registry(folder / "registry") as registry,
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
        pytest.MonkeyPatch.context() as patch,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        conf = folder / "registries.conf"
        hosts = (CLUSTER_REGISTRY, registry.host)
        conf.write_text("".join(f'[[registry]]\nlocation = "{host}"\ninsecure = true\n' for host in hosts))
        for name, value in (engine.environment | {"CONTAINERS_REGISTRIES_CONF": str(conf)}).items():
            patch.setenv(name, value)
        url = f"http://127.0.0.1:{server.server_port}"
        (src / "requirements" / "trainer.txt").write_text(
            f"{requirements('click', 'ahocorasick-rs')}torch @ {url}/{torch_wheel(files)}\n"
        )
        for arguments in (
            ["init", "-q"],
            ["add", "."],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a"],
        ):
            subprocess.run(["git", "-C", str(src), *arguments], check=True, env=os.environ | {"GIT_CONFIG_GLOBAL": "/dev/null"})
        yield Checkout(folder, engine, registry, files, url)
        server.shutdown()


@pytest.fixture(scope="module")
def images(checkout: Checkout) -> tuple[PushResult, PushResult]:
    """Build on a base that has torch, and again after a change of the code; the requirements name torch's libraries, too."""
    base = checkout.folder / "base"
    base.mkdir()
    site = "$(python3 -c 'import site; print(site.getsitepackages()[0])')"
    metadata = "Metadata-Version: 2.1\\nName: torch\\nVersion: 9.9\\n"
    create = f"d={site}; mkdir -p $d/torch $d/torch-9.9.dist-info; echo '__version__ = \"9.9\"' >$d/torch/__init__.py"
    (base / "Dockerfile").write_text(
        f"FROM {base_image()}\nRUN {create}; printf '{metadata}' >$d/torch-9.9.dist-info/METADATA; "
        "printf pip >$d/torch-9.9.dist-info/INSTALLER; touch $d/torch-9.9.dist-info/RECORD\n"
    )
    with_torch = "localhost/with-torch:1"
    checkout.buildah("build", "--tag", with_torch, str(base))
    file = checkout.src / "requirements" / "trainer.txt"
    pinned = file.read_text()
    file.write_text(pinned + (cuda := requirements("triton", "nvidia-[a-z0-9-]+", "cuda-[a-z]+")))
    assert "nvidia-nccl" in cuda
    marker = checkout.src / "kfjob" / "added.py"
    try:
        first = checkout.build(with_torch)
        marker.write_text("")
        return first, checkout.build(with_torch)
    finally:
        marker.unlink(missing_ok=True)
        file.write_text(pinned)


def test_torch_of_the_base_stays(checkout: Checkout, images: tuple[PushResult, PushResult]):
    """The build removes torch from the requirements, because pip would replace the base's torch."""
    image, _ = images
    assert checkout.run_in(image, "python3", "-c", "import torch, kfjob, click; print(torch.__version__)") == "9.9\n"
    installed = json.loads(checkout.run_in(image, "python3", "-m", "pip", "list", "--format=json"))
    assert not [package["name"] for package in installed if package["name"].startswith(("nvidia", "triton", "cuda"))]


def test_image_has_a_user_a_folder_and_labels(checkout: Checkout, images: tuple[PushResult, PushResult]):
    image, _ = images
    assert checkout.run_in(image, "sh", "-c", "id -un; pwd; touch here") == "kfjob\n/workspace\n"
    config = checkout.config(image)["config"]
    assert config["User"] == "kfjob"
    head = subprocess.run(["git", "-C", str(checkout.src), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert config["Labels"]["org.opencontainers.image.revision"] == head.stdout.strip()
    assert config["Labels"]["org.opencontainers.image.created"].endswith("Z")
    assert config["Labels"]["dev.kfjob.version"] == config["Labels"]["org.opencontainers.image.version"] == "0.1.0"


def test_code_change_reuses_the_dependency_layers(checkout: Checkout, images: tuple[PushResult, PushResult]):
    first, second = images
    old_layers, new_layers = checkout.layers(first), checkout.layers(second)
    same = sum(old == new for old, new in zip(old_layers, new_layers, strict=True))
    commands = [step["created_by"] for step in checkout.config(second)["history"] if not step.get("empty_layer")]
    (dependencies,) = (number for number, command in enumerate(commands) if "require-hashes" in command)
    (code,) = (number for number, command in enumerate(commands) if "--no-index" in command)
    assert dependencies < same <= code
    assert old_layers[:same] == new_layers[:same]


@pytest.mark.long
def test_target_nccl_tests(checkout: Checkout):
    """Download, check and unpack the sources, and pass the paths to `make`. Sources and `make` are stubs: there is no CUDA."""
    base = checkout.folder / "make"
    base.mkdir()
    (base / "make").write_text(MAKE)
    (base / "make").chmod(0o755)
    (base / "Dockerfile").write_text(f"FROM {base_image()}\nCOPY make /usr/local/bin/make\nRUN mkdir -p /opt/mpi\n")
    with_make = str(checkout.build("", context=str(base), base_image=None).ref)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("nccl-tests-2/Makefile"))
    (checkout.files / "sources.tar.gz").write_bytes(out.getvalue())
    args = {"TORCH": "none", "NCCL_TESTS_URL": f"{checkout.url}/sources.tar.gz", "NCCL_HOME": "/opt/nccl"}
    with pytest.raises(Refused, match="the build failed") as caught:
        checkout.build(with_make, target="nccl-tests", build_args=args)
    assert "did NOT match" in str(caught.value.cause)
    args["NCCL_TESTS_SHA256"] = hashlib.sha256(out.getvalue()).hexdigest()
    for mpi, arguments in (("/nowhere", "MPI=0 MPI_HOME=/nowhere"), ("/opt/mpi", "MPI=1 MPI_HOME=/opt/mpi")):
        image = checkout.build(with_make, target="nccl-tests", build_args=args | {"MPI_HOME": mpi})
        recorded = checkout.run_in(image, "cat", "/opt/nccl-tests/arguments")
        assert f"{arguments} CUDA_HOME=/usr/local/cuda NCCL_HOME=/opt/nccl" in recorded
    assert checkout.run_in(image, "id", "-un") == "kfjob\n"
