"""What the container engines are told to build an image and to hand it over as files: argument lists, pure.

None of them pushes. What they hand over, kfjob's own registry client uploads, so that no engine is ever given a registry's
password, a broken push is taken up again whatever built the image, and the digest is known before the first byte is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

EngineName = Literal["docker", "buildah", "podman", "nerdctl", "finch"]

Argv = list[str]


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One build."""

    context: Path
    dockerfile: Path
    local_name: str  # what the engine calls the image on this machine
    platform: str
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    target: str | None = None
    no_cache: bool = False


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One of them, as it was found on this machine."""

    name: EngineName
    program: str
    buildkit: Literal["", "buildx", "own"] = ""
    """docker's client of BuildKit: the plugin buildx, or (in versions 18.09 to 22) one of its own; "": its classic builder."""

    @property
    def has_secrets(self) -> bool:
        """Whether `RUN --mount=type=secret` works: not with docker's classic builder."""
        return self.name != "docker" or bool(self.buildkit)

    @property
    def environment(self) -> dict[str, str]:
        """What it is told beside its arguments."""
        chosen = self.name == "docker" and self.buildkit != "buildx"
        return {"DOCKER_BUILDKIT": "1" if self.buildkit else "0"} if chosen else {}

    @property
    def takes_authfile(self) -> bool:
        """Whether a login for base images is given as `--authfile`; else as a folder, in DOCKER_CONFIG."""
        return self.name in ("buildah", "podman")


_DOCKER = {
    "": ["build"],
    "own": ["build", "--progress=plain"],
    "buildx": ["buildx", "build", "--load", "--provenance=false", "--progress=plain"],
}


def make_build_command(engine: Engine, wanted: BuildRequest, out: Path, *, authfile: Path | None = None) -> Argv:
    """Build, and write the image's id (or with nerdctl and finch the image itself) to `out`."""
    match engine.name:
        case "docker":
            argv = [engine.program, *_DOCKER[engine.buildkit], "--iidfile", str(out)]
        case "buildah" | "podman":
            login = ["--authfile", str(authfile)] if authfile else []
            argv = [engine.program, "build", "--layers", "--format=oci", "--iidfile", str(out), *login]
        case _:
            argv = [engine.program, "build", "--progress=plain", "--output", f"type=oci,dest={out}"]
    return [*argv, *_common(wanted)]


def make_export_command(engine: Engine, image: str, out: Path) -> Argv | None:
    """Write the image of this id to `out`, a folder or an archive; None: building has done so."""
    match engine.name:
        case "docker":
            return [engine.program, "save", "--output", str(out), image]
        case "buildah" | "podman":
            return [engine.program, "push", "--quiet", image.removeprefix("sha256:"), f"oci:{out}:image"]
        case _:
            return None


def _common(wanted: BuildRequest) -> Argv:
    argv = ["--file", str(wanted.dockerfile), "--tag", wanted.local_name, "--platform", wanted.platform]
    argv += _pairs("--build-arg", wanted.build_args)
    argv += _pairs("--label", wanted.labels)
    argv += [word for name, file in wanted.secrets.items() for word in ("--secret", f"id={name},src={file}")]
    argv += ["--target", wanted.target] if wanted.target else []
    argv += ["--no-cache"] if wanted.no_cache else []
    return [*argv, str(wanted.context)]


def _pairs(option: str, values: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        yield from (option, f"{name}={value}")
