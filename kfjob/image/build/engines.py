"""Command lines of the container engines: build an image, and export it as files. Pure.

No engine pushes. kfjob's own registry client uploads the exported image. So no engine receives a registry's password, a push
resumes after a broken connection with every engine, and the digest is known before the first byte is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct, field

EngineName = Literal["docker", "buildah", "podman", "nerdctl", "finch"]
BUILDERS: tuple[EngineName, ...] = get_args(EngineName)
"""The engines in the order in which kfjob looks for them on PATH."""

Argv = list[str]


class BuildRequest(Struct, frozen=True, kw_only=True):
    """The input of one build."""

    context: Path
    dockerfile: Path
    dockerfile_content: bytes = b""
    """What kfjob has read of `dockerfile`, for its own checks and for the engine."""
    local_name: str  # the image's name in the engine's storage
    platform: str
    build_args: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)  # file by id
    target: str | None = None
    no_cache: bool = False


class Engine(Struct, frozen=True, kw_only=True):
    """A container engine on this machine."""

    name: EngineName
    program: str
    buildkit: Literal["", "buildx", "own"] = ""
    """Docker's BuildKit client: the plugin buildx, or its own (versions 18.09 to 22); "" is the classic builder."""

    @property
    def has_secrets(self) -> bool:
        """Whether `RUN --mount=type=secret` works; it does not in docker's classic builder."""
        return self.name != "docker" or bool(self.buildkit)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that select docker's builder."""
        selects_builder = self.name == "docker" and self.buildkit != "buildx"
        return {"DOCKER_BUILDKIT": "1" if self.buildkit else "0"} if selects_builder else {}

    @property
    def takes_authfile(self) -> bool:
        """Whether the engine reads logins from `--authfile`; other engines read the folder of DOCKER_CONFIG."""
        return self.name in ("buildah", "podman")

    @property
    def has_storage(self) -> bool:
        """Whether a build leaves the image in the engine's storage; nerdctl and finch write it to a file."""
        return self.name in ("docker", "buildah", "podman")


_DOCKER_BUILD = {
    "": ["build"],
    "own": ["build", "--progress=plain"],
    "buildx": ["buildx", "build", "--load", "--provenance=false", "--progress=plain"],
}


def make_build_command(engine: Engine, request: BuildRequest, out: Path, *, authfile: Path | None = None) -> Argv:
    """Return the command that builds the image and writes its id to `out`; nerdctl and finch write the image itself."""
    match engine.name:
        case "docker":
            argv = [engine.program, *_DOCKER_BUILD[engine.buildkit], "--iidfile", str(out)]
        case "buildah" | "podman":
            login = ["--authfile", str(authfile)] if authfile else []
            argv = [engine.program, "build", "--layers", "--format=oci", "--iidfile", str(out), *login]
        case _:
            argv = [engine.program, "build", "--progress=plain", "--output", f"type=oci,dest={out}"]
    return [*argv, *_make_build_options(request)]


def make_export_command(engine: Engine, image_id: str, out: Path) -> Argv | None:
    """Return the command that writes an image to `out`, a folder or an archive; None if the build has done so."""
    match engine.name:
        case "docker":
            return [engine.program, "save", "--output", str(out), image_id]
        case "buildah" | "podman":
            return [engine.program, "push", "--quiet", image_id.removeprefix("sha256:"), f"oci:{out}:image"]
        case _:
            return None


def _make_build_options(request: BuildRequest) -> Argv:
    argv = ["--file", str(request.dockerfile), "--tag", request.local_name, "--platform", request.platform]
    argv += _make_pairs("--build-arg", request.build_args)
    argv += _make_pairs("--label", request.labels)
    argv += [word for name, file in request.secrets.items() for word in ("--secret", f"id={name},src={file}")]
    argv += ["--target", request.target] if request.target else []
    argv += ["--no-cache"] if request.no_cache else []
    return [*argv, str(request.context)]


def _make_pairs(option: str, values: Mapping[str, str]) -> Iterator[str]:
    for name, value in values.items():
        yield from (option, f"{name}={value}")
