"""`submit --build FOLDER`: the job's image is built, pushed and pinned before the job is submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.options import notify
from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.settings import Settings
    from kfjob.compile.images import ImageChange

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


def built(image: str | None, build: Build, settings: Settings, *, dry_run: bool, code: CodeLayer | None = None) -> str:
    """The image that is built, pushed and pinned. It goes to the repository that `image` names, if it does.

    A dry run does nothing of that: the image then has a digest only if the registry has it already.
    """
    from kfjob.api.images.push_image import preview_push
    from kfjob.cli.push_image import build_and_push, image_spec
    from kfjob.image.references import parse_reference

    said = {
        "folder": build.folder,
        "build_args": build.build_args,
        "base_image": build.base_image,
        "builder": build.builder,
        "profile": settings.aws_profile,
        "to": parse_reference(image).name if image else None,
    }
    if not dry_run:
        return str(build_and_push(image_spec(said)).ref)
    ref = preview_push(image_spec(said), notify)
    notify(f"image: {'the registry has' if ref.digest else 'would build and push'} `{ref}`")
    if code and not ref.digest:
        title = "what `--code` makes of an image that is not built yet cannot be known"
        raise UsageError(title, hint="leave `--code` out of the dry run")
    return str(ref)


def image_change(build: Build | None, code: CodeLayer | None, settings: Settings, *, dry_run: bool) -> ImageChange | None:
    """What is to be made of a template's image; None: nothing."""
    if not build and not code:
        return None

    def change(image: str) -> str:
        made = built(image, build, settings, dry_run=dry_run, code=code) if build else image
        if not code:
            return made
        from kfjob.api.images.code_layer import push_code_layer
        from kfjob.api.target import find_target

        return push_code_layer(made, code, find_target(settings, notify=notify), notify=notify, dry_run=dry_run)

    return change
