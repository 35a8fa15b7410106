"""Checks of this machine: what kfjob itself needs, what the local backend needs, and what leads to a cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from kfjob.api.doctor.findings import Checks, Finding, fail, ok, warn
from kfjob.api.kubeconfig import find_kube_context
from kfjob.api.settings import Settings

OLDEST_PYTHON = (3, 11)
GIB = 2**30
DISK_WARN, DISK_FAIL = 10 * GIB, GIB
INSTALL_TRAINER = "scripts/env trainer (in a checkout), or pip install 'PATH[trainer]' (PATH: a checkout or a kfjob wheel)"
BUILDERS = ("docker", "buildah", "podman", "nerdctl", "finch")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a person sits."""

    settings: Settings
    environ: Mapping[str, str]

    def program(self, name: str) -> str | None:
        """Where a program is, the folder of our own Python first."""
        path = os.pathsep.join([str(Path(sys.executable).parent), self.environ.get("PATH", os.defpath)])
        return shutil.which(name, path=path)


def python(_: Machine) -> Iterator[Finding]:
    """The interpreter that runs kfjob."""
    said = f"{sys.version.split()[0]} at {sys.executable}"
    good = sys.version_info >= OLDEST_PYTHON
    yield ok("python", said) if good else fail("python", said, "install Python 3.11 or newer")


def kfjob(_: Machine) -> Iterator[Finding]:
    """Ourselves."""
    yield ok("kfjob", f"{metadata.version('kfjob')} at {Path(__file__).parents[2]}")


def torch(here: Machine) -> Iterator[Finding]:
    """Jobs on this machine are run by its own torchrun. It is not imported: that takes seconds."""
    version, torchrun = _version("torch"), here.program("torchrun")
    if version and torchrun:
        yield ok("torch", f"{version}, {torchrun}")
    else:
        missing = "not installed" if not version else f"{version}, but there is no `torchrun` on PATH"
        yield warn("torch", f"{missing}: jobs cannot run on this machine", INSTALL_TRAINER)


def deepspeed(here: Machine) -> Iterator[Finding]:
    """It compiles its operators when it is first used, also on a machine that only tries a job."""
    if (version := _version("deepspeed")) is None:
        return
    missing = [name for name in ("g++", "ninja") if not here.program(name)]
    if missing:
        named = " and ".join(f"`{name}`" for name in missing)
        yield warn("deepspeed", f"{version}, and no {named} to compile its operators", f"apt-get install {_packages(missing)}")
    else:
        yield ok("deepspeed", version)


def etcd(here: Machine) -> Iterator[Finding]:
    """Only for jobs on this machine with an etcd rendezvous."""
    found = here.program("etcd")
    missing = warn("etcd", "not on PATH: an etcd rendezvous works on a cluster only", "apt-get install etcd-server")
    yield ok("etcd", found) if found else missing


def envsubst(here: Machine) -> Iterator[Finding]:
    """GNU envsubst is what people expect under this name; the Python package's script treats options as file names."""
    path = here.program("envsubst")
    if path is None:
        return
    if b"from envsubst import" in _head(path):
        yield warn("envsubst", f"{path} hides GNU envsubst and fails with its options", f"rm {shlex.quote(path)}")
    else:
        yield ok("envsubst", path)


def settings(here: Machine) -> Iterator[Finding]:
    """What configuration came to; a file that cannot be read is an error of every command."""
    said = {"backend": here.settings.backend, "context": here.settings.context, "namespace": here.settings.namespace}
    shown = ", ".join(f"{name} {value}" for name, value in said.items() if value)
    yield ok("settings", shown or "nothing said: kubeconfig and defaults decide")


def disk(here: Machine) -> Iterator[Finding]:
    """Logs, archives and local volumes are written to the state folder."""
    folder = _existing(here.settings.state)
    if not os.access(folder, os.W_OK):
        yield fail(
            "disk", f"`{folder}` cannot be written to", f"chown or chmod it, or set KFJOB_STATE (now {here.settings.state})"
        )
        return
    free = shutil.disk_usage(folder).free
    said, remedy = f"{free / GIB:.1f} GiB free at {here.settings.state}", "free some space, or set KFJOB_STATE"
    yield ok("disk", said) if free > DISK_WARN else (warn if free > DISK_FAIL else fail)("disk", said, remedy)


def archived(here: Machine) -> Iterator[Finding]:
    """Where the logs of jobs go that were stopped."""
    root = here.settings.archive
    if not root.exists():
        yield ok("archive", f"{root} (nothing archived yet)")
        return
    kept = sum(1 for _ in root.glob("*/*/*"))
    good = os.access(root, os.R_OK | os.W_OK | os.X_OK)
    yield (
        ok("archive", f"{root}, {kept} launches") if good else fail("archive", f"{root} is not ours", f"chown -R $USER {root}")
    )


def kubeconfig(here: Machine) -> Iterator[Finding]:
    """Which cluster, before anything is sent to it."""
    current = find_kube_context(here.environ, here.settings.context)
    if current:
        namespace = here.settings.namespace or current.namespace
        yield ok("kubeconfig", f"context `{current.name}`, namespace `{namespace}`")
        return
    wanted = f"no context `{here.settings.context}`" if here.settings.context else "none"
    hint = "aws eks update-kubeconfig --name CLUSTER"
    is_needed = here.settings.context or here.settings.backend == "kubernetes"
    yield (fail if is_needed else warn)("kubeconfig", f"{wanted}: jobs run on this machine only", hint)


def builder(here: Machine) -> Iterator[Finding]:
    """What can build an image, the first is taken."""
    found = [name for name in BUILDERS if here.program(name)]
    missing = warn("builder", f"none of {', '.join(BUILDERS)} on PATH: no image can be built here", "apt-get install buildah")
    yield ok("builder", ", ".join(found)) if found else missing


CHECKS: Checks[Machine] = {
    "python": python,
    "kfjob": kfjob,
    "torch": torch,
    "deepspeed": deepspeed,
    "etcd": etcd,
    "envsubst": envsubst,
    "disk": disk,
    "settings": settings,
    "archive": archived,
    "kubeconfig": kubeconfig,
    "builder": builder,
}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _head(path: str) -> bytes:
    """The first bytes of a program: all of a script, and nothing of what may be run and not be read."""
    if not Path(path).is_file():  # a FIFO would be waited for
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def _packages(programs: list[str]) -> str:
    return " ".join({"ninja": "ninja-build"}.get(name, name) for name in programs)


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
