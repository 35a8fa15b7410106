"""The command `push-image`: build an image, push it, and pin it in a spec."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from kfjob.api.settings import load_current_settings
from kfjob.api.user_files import read_text
from kfjob.base.errors import BackendError, UsageError
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.text import plural
from kfjob.cli.image_options import ImageOptions, build_and_push, image_options
from kfjob.cli.options import combine, debug_option, include_option, output_option
from kfjob.cli.output import print_json

if TYPE_CHECKING:
    from kfjob.api.images.push_code import CodePushResult
    from kfjob.api.images.push_image import PushResult


_BUILD_FIELDS = ("dockerfile", "build_args", "base_image", "secrets", "target", "builder")
_OPTIONS = {"dockerfile": "file", "build_args": "build-arg", "base_image": "base-image", "secrets": "secret"}

_code_options = combine(
    click.option("--code", metavar="DIR", help="Build nothing: add this directory to the image of --onto."),
    click.option("--onto", metavar="IMAGE", help="Image that --code extends."),
    click.option("--workdir", metavar="PATH", help="Directory in the image for --code. Default: its working directory."),
    include_option,
)


@click.command("push-image")
@image_options
@_code_options
@click.option("--pin", metavar="SPEC", help="Write the image with its digest into this spec file.")
@click.option("-q", "--quiet", is_flag=True, help="Hide the output of the build engine.")
@output_option("name", "json")
@debug_option
def push_image(
    *,
    image: ImageOptions,
    code: str | None,
    onto: str | None,
    workdir: str | None,
    include: tuple[str, ...],
    pin: str | None,
    quiet: bool,
    output: str,
) -> None:
    """Build the image of DIR, push it, and print its name with its digest.

    Nothing is built if the registry has an image of the same content. With --code, no engine is needed: the directory is
    added to an existing image.
    """
    if pin:
        read_text(pin, "spec")  # a missing spec is an error before the build, not after it
    image = replace(image, profile=image.profile or load_current_settings().aws_profile)
    result: PushResult | CodePushResult
    if code or onto or workdir or include:
        result = _push_code(image, code=code, onto=onto, workdir=workdir, include=include)
    else:
        result = build_and_push(image.spec(), quiet=quiet)
    if pin:
        _pin(Path(pin), str(result.ref))
    if output == "json":
        print_json(result.describe())
    else:
        click.echo(str(result.ref))


def _push_code(
    image: ImageOptions, *, code: str | None, onto: str | None, workdir: str | None, include: tuple[str, ...]
) -> CodePushResult:
    """Add the directory `code` to the image `onto` and push the result, with a progress bar on stderr.

    Raises:
        UsageError: `--code` or `--onto` is missing, or an option applies only to builds.
    """
    from kfjob.api.images.push_code import push_code as push
    from kfjob.cli.console import show_uploads

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


def _target(image: ImageOptions, onto: str) -> str | None:
    if not image.tag or image.tag == "auto":
        return image.to
    from kfjob.image.references import parse_reference

    return str(parse_reference(image.to or onto).with_tag(image.tag))


def _pin(file: Path, image: str) -> None:
    from kfjob.source.pin import pin_image

    target = file.resolve()  # write to the target of a link, and keep the link
    try:
        text = pin_image(read_document(target).decode(), image, file=str(file))
        with tempfile.NamedTemporaryFile("wb", dir=target.parent, delete=False) as new:
            new.write(text.encode())
        Path(new.name).chmod(target.stat().st_mode & 0o7777)
        os.replace(new.name, target)  # noqa: PTH105 - atomic, so that a spec is never half written
    except (OSError, ParseError) as err:
        raise BackendError(f"cannot write `{file}`", cause=str(err), hint=f"the pushed image is `{image}`") from err
    click.echo(f"pinned the image in `{file}`", err=True)
