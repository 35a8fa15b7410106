"""`submit --build DIR`: build, push and pin the job's image before the submit."""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from kfjob.base.errors import UsageError
from kfjob.cli.image_options import BUILDERS, ImageOptions
from kfjob.cli.options import Command, Result, notify

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.job_files import BuildImage
    from kfjob.api.settings import Settings


def build_options(command: Command[Result]) -> Command[Result]:
    """Add `--build` and its options; the command receives them as `build`, which is None without `--build`."""

    @click.option("--build", "folder", metavar="DIR", help="Build the Dockerfile in this directory, push the image and run it.")
    @click.option(
        "--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="Build argument for --build. Repeatable."
    )
    @click.option("--builder", metavar="ENGINE", help=f"Build engine for --build: {BUILDERS}.")
    @functools.wraps(command)
    def with_build(
        *,
        folder: str | None,
        build_args: tuple[str, ...],
        builder: str | None,
        **parameters: object,
    ) -> Result:
        if not folder and (build_args or builder):
            option = "--build-arg" if build_args else "--builder"
            raise UsageError(f"`{option}` needs `--build`", hint="`--build DIR` names the directory with the Dockerfile")
        build = ImageOptions(folder=folder, build_args=build_args, builder=builder) if folder else None
        return command(build=build, **parameters)

    return with_build


def plan_build(build: ImageOptions | None, settings: Settings, *, dry_run: bool, code: CodeLayer | None) -> BuildImage | None:
    """Return the function that builds the image of a job; None without `--build`.

    A dry run builds nothing: the reference then has a digest only if the registry has the image.
    """
    return partial(_build_image, build=build, settings=settings, dry_run=dry_run, code=code) if build else None


def _build_image(image: str | None, *, build: ImageOptions, settings: Settings, dry_run: bool, code: CodeLayer | None) -> str:
    """Build and push an image, and return its reference with the digest. The repository is that of `image`, if it is set.

    Raises:
        UsageError: a dry run cannot tell what `code` changes, because the registry does not have the image.
    """
    from kfjob.api.images.push_image import preview_push
    from kfjob.cli.push_image import build_and_push
    from kfjob.image.references import parse_reference

    spec = replace(build, profile=settings.aws_profile, to=parse_reference(image).name if image else None).spec()
    if not dry_run:
        return str(build_and_push(spec).ref)
    ref = preview_push(spec, notify)
    notify(f"image: {'the registry has' if ref.digest else 'would build and push'} `{ref}`")
    if code and not ref.digest:
        title = "a dry run cannot add `--code` to an image that is not built yet"
        raise UsageError(title, hint="leave `--code` out of the dry run")
    return str(ref)
