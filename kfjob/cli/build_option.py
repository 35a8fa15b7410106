"""`submit --build FOLDER`: the job's image is built, pushed and pinned before the job is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.config import Settings
    from kfjob.spec.source import Loaded

Command = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Build:
    """What was said of the image to build."""

    folder: str
    build_args: tuple[str, ...]
    base_image: str | None
    builder: str | None


def build(command: Command) -> Command:
    """`--build` and what belongs to it, given as one `build`."""

    @click.option("--build", "folder", metavar="DIR", help="Build and push this folder's Dockerfile first, and run that image.")
    @click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="With --build: an ARG of it.")
    @click.option("--base-image", metavar="IMAGE", help="With --build: the ARG BASE_IMAGE.")
    @click.option("--builder", metavar="ENGINE", help="With --build: docker, buildah, podman, nerdctl or finch.")
    def wrapped(*, folder: str | None, build_args: Any, base_image: str | None, builder: str | None, **rest: Any) -> Any:
        if not folder and (build_args or base_image or builder):
            raise UsageError("nothing is to be built", hint="`--build DIR` names the folder with the Dockerfile")
        said = Build(folder=folder, build_args=build_args, base_image=base_image, builder=builder) if folder else None
        return command(build=said, **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = [*getattr(command, "__click_params__", []), *wrapped.__click_params__]  # type: ignore[attr-defined]
    return wrapped


def built(loaded: Loaded, build: Build, settings: Settings) -> Loaded:
    """The spec with the digest of what was built. It goes to the repository that the spec's `image` names, if it does."""
    from kfjob.cli.push_image import build_and_push, image_spec
    from kfjob.image.references import parse

    said = {
        "folder": build.folder,
        "build_args": build.build_args,
        "base_image": build.base_image,
        "builder": build.builder,
        "profile": settings.aws_profile,
        "to": parse(loaded.spec.image).name if loaded.spec.image else None,
    }
    outcome = build_and_push(image_spec(said))
    return replace(loaded, spec=loaded.spec.model_copy(update={"image": str(outcome.ref)}))
