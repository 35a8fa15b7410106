"""Checks of this machine: what kfjob, the local backend and the connection to a cluster need."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from msgspec import Struct

from kfjob.api.doctor.findings import Checks, Finding, fail, ok, warn
from kfjob.api.settings import Settings
from kfjob.backends.kubeconfig import find_kube_context
from kfjob.base.text import plural
from kfjob.base.units import GIB, format_gib
from kfjob.image.build.engines import BUILDERS

DISK_WARN, DISK_FAIL = 10 * GIB, GIB
INSTALL_TRAINER = "scripts/env trainer (in a checkout), or pip install 'PATH[trainer]' (PATH: a checkout or a kfjob wheel)"


class Machine(Struct, frozen=True, kw_only=True):
    """Settings and environment of this machine."""

    settings: Settings
    environ: Mapping[str, str]

    def find_program(self, name: str) -> str | None:
        """Return the path of a program from the folder of this Python, then from PATH."""
        path = os.pathsep.join([str(Path(sys.executable).parent), self.environ.get("PATH", os.defpath)])
        return shutil.which(name, path=path)


def check_torch(machine: Machine) -> Iterator[Finding]:
    """Check torch and torchrun, which run local jobs. torch is not imported, because that takes seconds."""
    version, torchrun = _version("torch"), machine.find_program("torchrun")
    if version and torchrun:
        yield ok("torch", f"{version}, {torchrun}")
    else:
        missing = f"{version}, but `torchrun` is not on PATH" if version else "not installed"
        yield warn("torch", f"{missing}: jobs cannot run on this machine", INSTALL_TRAINER)


def check_deepspeed(machine: Machine) -> Iterator[Finding]:
    """Check for the compiler with which DeepSpeed compiles its asynchronous I/O at the first use."""
    if (version := _version("deepspeed")) is None:
        return
    missing = [name for name in ("g++", "ninja") if not machine.find_program(name)]
    if missing:
        names = " and ".join(f"`{name}`" for name in missing)
        remedy = f"apt-get update && apt-get install {_apt_packages(missing)}"
        yield warn("deepspeed", f"{version}; {names} not on PATH: jobs cannot use `disk_offload`", remedy)
    else:
        yield ok("deepspeed", version)


def check_etcd(machine: Machine) -> Iterator[Finding]:
    """Check for etcd, which only local jobs with an etcd rendezvous need."""
    path = machine.find_program("etcd")
    missing = warn(
        "etcd", "not on PATH: local jobs cannot use an etcd rendezvous", "apt-get update && apt-get install etcd-server"
    )
    yield ok("etcd", path) if path else missing


def check_envsubst(machine: Machine) -> Iterator[Finding]:
    """Check that `envsubst` is GNU's: the script of the Python package treats options as file names."""
    path = machine.find_program("envsubst")
    if path is None:
        return
    if b"from envsubst import" in _read_head(path):
        yield warn("envsubst", f"{path} hides GNU envsubst and does not support its options", f"rm {shlex.quote(path)}")
    else:
        yield ok("envsubst", path)


def check_settings(machine: Machine) -> Iterator[Finding]:
    """Report the merged settings. An unreadable settings file is an error of every command."""
    settings = machine.settings
    values = {"backend": settings.backend, "context": settings.context, "namespace": settings.namespace}
    text = ", ".join(f"{name} {value}" for name, value in values.items() if value)
    yield ok("settings", text or "none; kfjob uses the kubeconfig and defaults")


def check_disk(machine: Machine) -> Iterator[Finding]:
    """Check the state folder, which holds logs, archives and local volumes."""
    state = machine.settings.state
    folder = _nearest_existing_folder(state)
    if not os.access(folder, os.W_OK):
        yield fail("disk", f"`{folder}` is not writable", f"use chown or chmod, or set KFJOB_STATE (now {state})")
        return
    free = shutil.disk_usage(folder).free
    message, remedy = f"{format_gib(free)} free at {state}", "free some space, or set KFJOB_STATE"
    yield ok("disk", message) if free > DISK_WARN else (warn if free > DISK_FAIL else fail)("disk", message, remedy)


def check_archive(machine: Machine) -> Iterator[Finding]:
    """Check the archive folder, which holds the logs of stopped jobs."""
    folder = machine.settings.archive_folder
    if not folder.exists():
        yield ok("archive", f"{folder} (empty)")
    elif os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield ok("archive", f"{folder}, {plural(sum(1 for _ in folder.glob('*/*/*')), 'launch', 'launches')}")
    else:
        yield fail("archive", f"{folder} is not readable and writable", f"chown -R $USER {folder}")


def check_kubeconfig(machine: Machine) -> Iterator[Finding]:
    """Check for a context in the kubeconfig."""
    settings = machine.settings
    if context := find_kube_context(machine.environ, settings.context):
        namespace = settings.namespace or context.namespace
        yield ok("kubeconfig", f"context `{context.name}`, namespace `{namespace}`")
        return
    problem = f"no context `{settings.context}`" if settings.context else "no context"
    is_required = settings.context or settings.backend == "kubernetes"
    remedy = "aws eks update-kubeconfig --name CLUSTER"
    yield (fail if is_required else warn)("kubeconfig", f"{problem}: jobs can run only on this machine", remedy)


def check_builder(machine: Machine) -> Iterator[Finding]:
    """Check for programs that build images; kfjob uses the first."""
    builders = [name for name in BUILDERS if machine.find_program(name)]
    missing = warn(
        "builder",
        f"none of {', '.join(BUILDERS)} on PATH: kfjob cannot build images",
        "apt-get update && apt-get install buildah",
    )
    yield ok("builder", ", ".join(builders)) if builders else missing


CHECKS: Checks[Machine] = {
    "torch": check_torch,
    "deepspeed": check_deepspeed,
    "etcd": check_etcd,
    "envsubst": check_envsubst,
    "disk": check_disk,
    "settings": check_settings,
    "archive": check_archive,
    "kubeconfig": check_kubeconfig,
    "builder": check_builder,
}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _read_head(path: str) -> bytes:
    """Return the first 4 KiB of a program; empty if it is not readable or not a regular file."""
    if not Path(path).is_file():  # reading a FIFO would block
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _apt_packages(programs: list[str]) -> str:
    return " ".join({"ninja": "ninja-build"}.get(name, name) for name in programs)


def _nearest_existing_folder(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
