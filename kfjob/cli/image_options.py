"""The options that describe an image to build, and the build that `submit --build` adds to a job."""

from __future__ import annotations

import functools
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import asdict, replace

from kfjob.base.errors import UsageError
from kfjob.cli.options import Command, Result, collect_options, notify

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.images.push_image import PushResult
    from kfjob.api.job_files import BuildImage
    from kfjob.api.settings import Settings
    from kfjob.spec.image import ImageSpec

BUILDERS = "docker, buildah, podman, nerdctl or finch"


class ImageOptions(Struct, frozen=True, kw_only=True):
    """The values of the options; None or empty stands for an option that was not given."""

    folder: str
    to: str | None = None
    tag: str | None = None
    dockerfile: str | None = None
    build_args: tuple[str, ...] = ()
    base_image: str | None = None
    secrets: tuple[str, ...] = ()
    target: str | None = None
    platform: str | None = None
    builder: str | None = None
    no_cache: bool = False
    profile: str | None = None
    region: str | None = None

    def spec(self) -> ImageSpec:
        """Return the image spec.

        Raises:
            SpecError: the options contradict each other.
            UsageError: a value has the wrong form.
        """
        from kfjob.spec.image import ImageSpec

        values = {name: value for name, value in asdict(self).items() if value not in (None, (), False)}
        values["context"] = values.pop("folder")
        values["build_args"] = dict(_parse_build_arg(argument) for argument in self.build_args)
        values["secrets"] = dict(_parse_secret(secret) for secret in self.secrets)
        return ImageSpec.model_validate(values)


image_options = collect_options(
    "image",
    ImageOptions,
    click.argument("folder", metavar="[DIR]", default="."),
    click.option(
        "--to",
        metavar="[HOST/]NAME[:TAG]",
        help="Image to push. Default: the directory's name; without a HOST, the ECR registry of your AWS account.",
    ),
    click.option("--tag", metavar="TAG", help="Tag of the image. Default: `auto`, a hash of the content of the build."),
    click.option("--file", "dockerfile", metavar="FILE", help="Dockerfile to build. Default: `Dockerfile` in DIR."),
    click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="Build argument. Repeatable."),
    click.option("--base-image", metavar="IMAGE", help="Value of the build argument BASE_IMAGE."),
    click.option(
        "--secret",
        "secrets",
        multiple=True,
        metavar="SECRET",
        help="File for a `RUN --mount=type=secret`, such as `id=pip,src=FILE`. Repeatable.",
    ),
    click.option("--target", metavar="STAGE", help="Build stage of the Dockerfile to push."),
    click.option("--platform", metavar="OS/ARCH", default="linux/amd64", show_default=True, help="Platform of the nodes."),
    click.option("--builder", metavar="ENGINE", help=f"Build engine: {BUILDERS}. Default: the first of them on PATH."),
    click.option("--no-cache", is_flag=True, help="Build and push even if the registry has the image."),
    click.option("--profile", metavar="NAME", help="AWS profile to use."),
    click.option("--region", metavar="REGION", help="AWS region of the ECR registry."),
)
"""The options of `push-image`; the command receives them as `image`."""


def _parse_build_arg(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"`--build-arg {text}` is not NAME=VALUE")
    return name, value


def _parse_secret(text: str) -> tuple[str, str]:
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    file = parts.get("src") or parts.get("source")
    if not parts.get("id") or not file:
        raise UsageError(f"`--secret {text}` is not id=ID,src=FILE")
    return parts["id"], file


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


def build_and_push(spec: ImageSpec, *, quiet: bool = False) -> PushResult:
    """Build and push an image, with the engine's output and the progress of the upload on stderr."""
    from kfjob.api.images.push_image import Listener
    from kfjob.api.images.push_image import build_and_push as build
    from kfjob.cli.console import show_uploads

    def print_line(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    with show_uploads() as progress:
        result = build(spec, Listener(notify=notify, output=print_line, progress=progress))
    if result.builder:
        sizes = f"{_format_size(result.sent_bytes)} uploaded, {_format_size(result.reused_bytes)} reused"
        click.echo(f"pushed `{result.ref.repository}:{result.ref.tag}` in {result.seconds:.0f} s: {sizes}", err=True)
    return result


def _format_size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:  # noqa: PLR2004 - SI units
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
