"""Real engines with separate storage, isolated from the machine's images."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCKERFILE = """\
ARG BASE_IMAGE=scratch
FROM ${BASE_IMAGE}
ARG GREETING=hello
COPY code /code
"""

CLASSIC = 'case "$1$DOCKER_BUILDKIT" in buildx*|*1) exit 1 ;; esac'
"""A docker without a BuildKit client, as docker from version 23 on without its plugin."""


@dataclass(frozen=True)
class Buildah:
    """Debian's buildah or podman, with mounts in a mount namespace of each call."""

    program: Path
    environment: dict[str, str]

    def labels(self, name: str) -> dict[str, str]:
        template = "{{range $key, $value := .OCIv1.Config.Labels}}{{$key}}={{$value}}\n{{end}}"
        words = [str(self.program), "inspect", "--type", "image", "--format", template, name]
        done = subprocess.run(words, env=os.environ | self.environment, capture_output=True, text=True, check=True)
        return dict(line.split("=", 1) for line in done.stdout.split())


def buildah(folder: Path, name: str = "buildah") -> Buildah:
    """Return buildah, or podman, which shares its build code."""
    real = shutil.which(name)
    assert real, f"the tests of images need a builder\nhint: apt-get install {name}"
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True)
    program = bin_folder / name
    program.write_text(f'#!/bin/sh\nexec unshare --mount {real} "$@"\n')
    program.chmod(0o755)
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "overlay"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/storage"\n')
    policy = folder / "policy.json"
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    return Buildah(program, {"CONTAINERS_STORAGE_CONF": str(storage), "BUILDAH_ISOLATION": "chroot"})


@dataclass(frozen=True)
class Dockerd:
    """A Docker daemon with private storage, mounts and sockets; its containers have no network."""

    folder: Path
    environment: dict[str, str]

    def client(self, name: str, lines: str = "") -> Path:
        """Return a `docker` in a folder of this name, which first runs these lines of shell."""
        real = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}")
        assert real, "the tests of images need docker\nhint: apt-get install docker.io"
        program = self.folder / name / "docker"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\n{lines}\nexec {real} "$@"\n')
        program.chmod(0o755)
        return program


@contextlib.contextmanager
def dockerd(folder: Path, hosts: str = "", *, authority: Path | None = None, small: bool = False) -> Iterator[Dockerd]:
    """Run the daemon until the block ends.

    `hosts` are lines of its private hosts file, `small` limits its disk to 8 MiB, `authority` is a certificate to trust.
    """
    assert shutil.which("dockerd"), "the tests of images need Docker's daemon\nhint: apt-get install docker.io"
    (folder / "data").mkdir()
    (folder / "daemon.json").write_text("{}")
    (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}\n")
    disk = f"mount -t tmpfs -o size=8m tmpfs {folder}/data && " if small else ""
    bridge = f"tests{os.urandom(4).hex()}"
    own = f'{disk}mount -t tmpfs tmpfs /run && mount --bind {folder}/hosts /etc/hosts && exec dockerd "$@"'
    argv = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        own,
        "dockerd",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-forward=false",
        "--bridge",
        bridge,
    ]
    argv += ["--config-file", f"{folder}/daemon.json", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    argv += ["--pidfile", f"{folder}/pid", "--host", f"unix://{folder}/socket"]
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", f"10.204.{os.getpid() % 250}.1/24", "dev", bridge], check=True)
    daemon = Dockerd(folder, {"DOCKER_HOST": f"unix://{folder}/socket"})
    with (folder / "log").open("wb") as log:
        trust = {"SSL_CERT_FILE": str(authority)} if authority else {}
        process = subprocess.Popen(argv, env=os.environ | trust, stdout=log, stderr=log)
    try:
        _wait_for(daemon.client("waiting"), process, daemon)
        yield daemon
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run(["ip", "link", "delete", bridge], check=True)


def _wait_for(client: Path, process: subprocess.Popen[bytes], daemon: Dockerd) -> None:
    deadline = time.monotonic() + 90
    while subprocess.run([client, "version"], env=os.environ | daemon.environment, capture_output=True, check=False).returncode:
        assert process.poll() is None, (daemon.folder / "log").read_text()
        assert time.monotonic() < deadline, (daemon.folder / "log").read_text()
        time.sleep(0.1)


def context(folder: Path, line: str = "print('one')\n") -> Path:
    """Write a small build context."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "train.py").write_text(line)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    return folder


def with_shell(source: Path) -> Path:
    """Write a context with a shell of this machine, for `COPY root/ /`."""
    root = source / "root"
    for file in ("/bin/sh", "/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6"):
        (root / file[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(file).resolve(), root / file[1:])
    return source
