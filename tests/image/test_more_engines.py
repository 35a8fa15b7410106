"""Builds with docker buildx, and with nerdctl, containerd and BuildKit; long tests, because these engines are built first.

finch is nerdctl in a virtual machine on macOS, with the same command line. Its module does not exist for Linux.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.images.push_image import build_and_push
from kfjob.base.errors import Refused
from kfjob.image.build import engine_process
from tests.image.builders import dockerd, with_shell
from tests.image.modules import program
from tests.image.registries import RealRegistry, manifest_of
from tests.image.test_engines import FAULTS, check_build_error
from tests.image.test_push_image import spec

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Engine:
    program: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def buildx(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with dockerd(tmp_path_factory.mktemp("d")) as daemon:
        plugins = daemon.folder / "config" / "cli-plugins"
        plugins.mkdir(parents=True)
        shutil.copy(program("docker-buildx"), plugins)
        (plugins / "docker-buildx").chmod(0o755)
        yield Engine(daemon.client("client"), daemon.environment | {"DOCKER_CONFIG": str(plugins.parent)})


@pytest.fixture(scope="module")
def nerdctl(plain: RealRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("n")
    (folder / "containerd.toml").write_text(
        f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
        f'[grpc]\naddress = "{folder}/containerd.sock"\n'
    )
    (folder / "buildkitd.toml").write_text(f'[registry."{plain.host}"]\nhttp = true\n')
    shutil.copy(program("buildctl"), folder)
    shutil.copy(program("nerdctl"), folder)
    kit = [str(program("buildkitd")), "--config", f"{folder}/buildkitd.toml", "--root", f"{folder}/kit"]
    kit += ["--addr", f"unix://{folder}/kit.sock", "--containerd-worker=false", "--oci-worker-net=host"]
    own = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /run && exec "$@"', "own"]
    with (folder / "log").open("wb") as log:
        argvs = (["containerd", "--config", f"{folder}/containerd.toml"], kit)
        started = [subprocess.Popen([*own, *argv], stdout=log, stderr=log) for argv in argvs]
    environment = {"CONTAINERD_ADDRESS": f"{folder}/containerd.sock", "BUILDKIT_HOST": f"unix://{folder}/kit.sock"}
    environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    try:
        deadline = time.monotonic() + 60
        while not all((folder / name).is_socket() for name in ("containerd.sock", "kit.sock")):
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield Engine(folder / "nerdctl", environment)
    finally:
        for process in started:
            process.terminate()
            process.wait(30)


@pytest.fixture(params=["buildx", "nerdctl"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    built_engine: Engine = request.getfixturevalue(request.param)
    for name, value in built_engine.environment.items():
        monkeypatch.setenv(name, value)
    assert engine_process.find_engine(str(built_engine.program)).has_secrets
    return str(built_engine.program)


def test_build_with_base_and_secret(engine: str, plain: RealRegistry, source: Path, name: str):
    with_shell(source)
    (source / "Dockerfile").write_text("FROM scratch\nCOPY root/ /\n")
    base = build_and_push(spec(source, f"{plain.host}/{name}", builder=engine))
    (source.parent / "pip.conf").write_text("hidden\n")
    run = "RUN --mount=type=secret,id=pip,target=/pip.conf read line </pip.conf && echo ${#line} >/length"
    (source / "Dockerfile").write_text(f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\n{run}\nCOPY code /code\n")
    more = {"builder": engine, "base_image": str(base.ref), "secrets": {"pip": str(source.parent / "pip.conf")}}
    result = build_and_push(spec(source, f"{plain.host}/{name}", **more))
    manifest: Any = manifest_of(plain, name, result.ref.digest)
    first: Any = manifest_of(plain, name, base.ref.digest)
    assert manifest["layers"][: len(first["layers"])] == first["layers"]
    assert result.reused_bytes > 100_000 > result.sent_bytes
    assert build_and_push(spec(source, f"{plain.host}/{name}", **more)).builder is None


@pytest.mark.parametrize("text", FAULTS)
def test_build_error_has_the_engines_output_as_cause(engine: str, plain: RealRegistry, source: Path, name: str, text: str):
    check_build_error(engine, plain, source, name, text)


def test_missing_daemon_has_a_hint(engine: str, plain: RealRegistry, source: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    for variable in ("BUILDKIT_HOST", "DOCKER_HOST"):
        monkeypatch.setenv(variable, f"unix://{source}/nobody")
    with pytest.raises(Refused, match="the build failed") as caught:
        build_and_push(spec(source, f"{plain.host}/{name}", builder=engine))
    assert "start the daemon" in str(caught.value.hint)
