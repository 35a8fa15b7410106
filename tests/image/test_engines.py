"""Builds with real engines: buildah, podman, and docker with a private daemon."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfjob.api.images.push_image import Listener, build_and_push
from kfjob.base.errors import Refused, UsageError
from kfjob.image.build import engine_process
from tests.image.builders import CLASSIC, Dockerd, buildah, dockerd, with_shell
from tests.image.images import push_image
from tests.image.registries import RealRegistry, is_absent, manifest_of
from tests.image.test_push_image import spec

ENGINES = ("buildah", "podman", "docker, classic", "docker, BuildKit")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dockerd]:
    with dockerd(tmp_path_factory.mktemp("d")) as process:
        yield process


@pytest.fixture(scope="module")
def programs(daemon: Dockerd, plain: RealRegistry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return each program with its environment."""
    engines: dict[str, Any] = {}
    for name in ("buildah", "podman"):
        builder = buildah(tmp_path_factory.mktemp(name), name)
        registries = builder.program.parent / "registries.conf"
        registries.write_text(f'[[registry]]\nlocation = "{plain.host}"\ninsecure = true\n')
        engines[name] = (builder.program, builder.environment | {"CONTAINERS_REGISTRIES_CONF": str(registries)})
    engines["docker, classic"] = (daemon.client("classic", CLASSIC), daemon.environment)
    engines["docker, BuildKit"] = (daemon.client("buildkit"), daemon.environment)
    return engines


@pytest.fixture
def engine(request: pytest.FixtureRequest, programs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    program, environment = programs[request.param]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DOCKER_BUILDKIT", raising=False)
    return str(program)


every = pytest.mark.parametrize("engine", ENGINES, indirect=True)
dockers = pytest.mark.parametrize("engine", ENGINES[2:], indirect=True)


def files_of(registry: RealRegistry, repository: str, layer: dict[str, Any]) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(registry.checked_blob(repository, layer["digest"])))) as tar:
        return tar.getnames()


@every
def test_build_uses_base_from_registry(engine: str, plain: RealRegistry, source: Path, name: str):
    with_shell(source)
    (source / "Dockerfile").write_text("FROM scratch\nCOPY root/ /\n")
    base = build_and_push(spec(source, f"{plain.host}/{name}", builder=engine))
    (source / "Dockerfile").write_text(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG GREETING\nRUN echo $GREETING >/made\nCOPY code /code\n"
    )
    more = {"builder": engine, "base_image": str(base.ref), "build_args": {"GREETING": "hello"}}
    result = build_and_push(spec(source, f"{plain.host}/{name}", **more))
    manifest: Any = manifest_of(plain, name, result.ref.digest)
    first: Any = manifest_of(plain, name, base.ref.digest)
    assert manifest["layers"][: len(first["layers"])] == first["layers"]
    assert "made" in [file for layer in manifest["layers"] for file in files_of(plain, name, layer)]
    assert result.reused_bytes > 100_000 > result.sent_bytes  # of the base nothing was sent again
    lines: list[str] = []
    second = build_and_push(spec(source, f"{plain.host}/{name}", **more), Listener(notify=lines.append))
    assert (second.ref, second.sent_bytes) == (result.ref, 0)
    assert "nothing was pushed" in lines[-1]


@pytest.mark.parametrize("engine", ["buildah", "podman", "docker, BuildKit"], indirect=True)
def test_build_secret_is_not_in_the_image(engine: str, plain: RealRegistry, source: Path, name: str):
    with_shell(source)
    (source.parent / "pip.conf").write_text("index-url = https://user:hidden@example\n")
    run = "RUN --mount=type=secret,id=pip,target=/pip.conf read line </pip.conf && echo ${#line} >/length"
    (source / "Dockerfile").write_text(f"FROM scratch\nCOPY root/ /\n{run}\n")
    result = build_and_push(
        spec(source, f"{plain.host}/{name}", builder=engine, secrets={"pip": str(source.parent / "pip.conf")})
    )
    manifest: Any = manifest_of(plain, name, result.ref.digest)
    blobs = [gzip.decompress(plain.checked_blob(name, layer["digest"])) for layer in manifest["layers"]]
    assert any(b"39\n" in blob for blob in blobs)
    assert not any(b"hidden" in blob for blob in [*blobs, plain.checked_blob(name, manifest["config"]["digest"])])


@pytest.mark.parametrize("engine", ["docker, classic"], indirect=True)
def test_classic_builder_without_secrets_and_mounts_is_an_error(engine: str, plain: RealRegistry, source: Path, name: str):
    (source.parent / "pip.conf").touch()
    with pytest.raises(UsageError, match="does not support build secrets"):
        build_and_push(spec(source, f"{plain.host}/{name}", builder=engine, secrets={"pip": str(source.parent / "pip.conf")}))
    (source / "Dockerfile").write_text("FROM scratch\nCOPY code /\nRUN --mount=type=secret,id=a,required=false true\n")
    with pytest.raises(Refused, match="the build failed") as caught:
        build_and_push(spec(source, f"{plain.host}/{name}", builder=engine))
    assert "buildx" in str(caught.value.hint)


FAULTS = {
    "FROM scratch\nCOPY root/ /\nRUN echo these words >&2; exit 3\n": "words",
    "FROM scratch\nFORM a\n": "FORM",
    "FROM scratch\nCOPY nothing /\n": "nothing",
    "FROM {host}/nothing:1\n": "nothing",
}


@every
@pytest.mark.parametrize("text", FAULTS)
def test_build_error_has_the_engines_output_as_cause(engine: str, plain: RealRegistry, source: Path, name: str, text: str):
    check_build_error(engine, plain, source, name, text)


def check_build_error(engine: str, plain: RealRegistry, source: Path, name: str, text: str) -> None:
    """Build a Dockerfile with a fault: the error has the engine's words, and nothing is pushed."""
    words = FAULTS[text]
    with_shell(source)
    (source / "Dockerfile").write_text(text.replace("{host}", plain.host))
    lines: list[str] = []
    with pytest.raises(Refused, match=r"the build failed \(`.*` exited with code [1-9]") as caught:
        build_and_push(spec(source, f"{plain.host}/{name}", builder=engine), Listener(output=lines.append))
    assert words in str(caught.value.cause)
    assert words in "\n".join(lines)
    assert is_absent(plain, f"{name}/tags/list")


@dockers
def test_missing_docker_daemon_has_a_hint(
    engine: str, plain: RealRegistry, source: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{source}/nobody")
    with pytest.raises(Refused, match="the build failed") as caught:
        build_and_push(spec(source, f"{plain.host}/{name}", builder=engine))
    assert "start the daemon of `docker`" in str(caught.value.hint)


def test_full_disk_of_docker_is_an_error(
    plain: RealRegistry, source: Path, name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    """The daemon's storage is a private file system of 8 MiB."""
    (source / "code" / "large").write_bytes(os.urandom(12 << 20))
    with dockerd(tmp_path_factory.mktemp("d"), small=True) as daemon:
        for key, value in daemon.environment.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(Refused, match="the build failed") as caught:
            build_and_push(spec(source, f"{plain.host}/{name}", builder=str(daemon.client("client"))))
    assert "docker system prune" in str(caught.value.hint)
    assert is_absent(plain, f"{name}/tags/list")


@pytest.mark.parametrize(("engine", "size"), [("buildah", "6m"), ("docker, classic", "20m")], indirect=["engine"])
def test_full_temporary_folder_is_an_error(  # noqa: PLR0917 - fixtures
    engine: str, size: str, plain: RealRegistry, source: Path, name: str, tmp_path: Path
):
    """TMPDIR is too small to export or to compress the image."""
    (source / "code" / "large").write_bytes(os.urandom(8 << 20))
    done = in_little_space(tmp_path, size, "push-image", str(source), "--to", f"{plain.host}/{name}", "--builder", engine)
    assert done.returncode == 1
    text = done.stderr[done.stderr.index("error: ") :]
    assert "the build failed" in text or "No space left on device" in text
    assert "Traceback" not in text
    assert is_absent(plain, f"{name}/tags/list")


def test_full_disk_for_a_layer_is_an_error(plain: RealRegistry, source: Path, name: str, tmp_path: Path):
    with plain.open() as registry:
        push_image(registry, name, "base", "oci")
    (source / "code" / "large").write_bytes(os.urandom(8 << 20))
    argv = ("push-image", "--code", str(source / "code"), "--onto", f"{plain.host}/{name}:base", "--to", f"{name}:new")
    done = in_little_space(tmp_path, "6m", *argv)
    assert done.stderr.startswith("error: the layer cannot be written")
    assert "No space left on device" in done.stderr
    assert "TMPDIR" in done.stderr
    assert is_absent(plain, f"{name}/manifests/new")


def in_little_space(folder: Path, size: str, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run kfjob with a private TMPDIR of this size."""
    little = folder / "little"
    little.mkdir()
    script = f'mount -t tmpfs -o size={size} tmpfs {little} && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", str(Path(sys.executable).with_name("kfjob")), *argv]
    env = os.environ | {"TMPDIR": str(little)}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_buildkit_client_is_detected(daemon: Dockerd, programs: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    assert engine_process.find_engine(str(programs["docker, classic"][0])).buildkit == ""
    assert engine_process.find_engine(str(programs["docker, BuildKit"][0])).buildkit in {"own", "buildx"}
    plugin = daemon.client("plugin", 'case "$1" in buildx) exit 0 ;; esac')
    assert engine_process.find_engine(str(plugin)).buildkit == "buildx"
