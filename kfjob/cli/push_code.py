"""`push-image --code`: add a directory to an image in a registry, without a build engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfjob.base.errors import UsageError
from kfjob.base.text import plural
from kfjob.cli.image_options import ImageOptions
from kfjob.cli.options import combine, include_option

if TYPE_CHECKING:
    from kfjob.api.images.push_code import CodePushResult

_BUILD_FIELDS = ("dockerfile", "build_args", "base_image", "secrets", "target", "builder")

push_code_options = combine(
    click.option("--code", metavar="DIR", help="Build nothing: add this directory to the image of --onto."),
    click.option("--onto", metavar="IMAGE", help="Image that --code extends."),
    click.option("--workdir", metavar="PATH", help="Directory in the image for --code. Default: its working directory."),
    include_option,
)


def push_code(
    image: ImageOptions, *, code: str | None, onto: str | None, workdir: str | None, include: tuple[str, ...]
) -> CodePushResult:
    """Add the directory `code` to the image `onto` and push the result, with a progress bar on stderr.

    Raises:
        UsageError: `--code` or `--onto` is missing, or an option applies only to builds.
    """
    from kfjob.api.images.push_code import push_code as push
    from kfjob.cli.upload_progress import show_uploads

    if not code or not onto:
        raise UsageError("`--code` and `--onto` must be used together", hint="`--code DIR --onto IMAGE`")
    if build_options := [name for name in _BUILD_FIELDS if getattr(image, name)]:
        raise UsageError(f"`--{_OPTIONS.get(build_options[0], build_options[0])}` cannot be used with `--code`")
    started = time.monotonic()
    with show_uploads() as progress:
        result = push(
            Path(code),
            onto,
            new_image=_target(image, onto),
            workdir=workdir,
            include=include,
            profile=image.profile,
            progress=progress,
        )
    seconds = f"{time.monotonic() - started:.1f} s"
    added = f"added {plural(result.files, 'file')} to `{onto}` and pushed it in {seconds}"
    click.echo(added if result.is_new else "the registry has this image already", err=True)
    return result


_OPTIONS = {"dockerfile": "file", "build_args": "build-arg", "base_image": "base-image", "secrets": "secret"}


def _target(image: ImageOptions, onto: str) -> str | None:
    if not image.tag or image.tag == "auto":
        return image.to
    from kfjob.image.references import parse_reference

    return str(parse_reference(image.to or onto).with_tag(image.tag))
