"""push-image: build an image, push it, and pin it in a spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.api.settings import settings_here
from kfjob.cli.options import notify, output, print_json, read_text
from kfjob.cli.push_code import code_options, push_code

if TYPE_CHECKING:
    from kfjob.api.images.push_code import CodePushResult
    from kfjob.api.images.push_image import Listener, PushResult
    from kfjob.spec.image import ImageSpec

Command = Callable[..., Any]

_BUILD_OPTIONS = (
    click.option("--file", "dockerfile", metavar="FILE", help="The Dockerfile; unset: the one in the folder."),
    click.option("--build-arg", "build_args", multiple=True, metavar="NAME=VALUE", help="An ARG of the Dockerfile."),
    click.option("--base-image", metavar="IMAGE", help="The ARG BASE_IMAGE."),
    click.option("--secret", "secrets", multiple=True, metavar="id=ID,src=FILE", help="For RUN --mount=type=secret."),
    click.option("--target", metavar="STAGE", help="A stage of the Dockerfile."),
    click.option("--platform", default="linux/amd64", show_default=True, help="Of the nodes."),
    click.option("--builder", metavar="ENGINE", help="docker, buildah, podman, nerdctl or finch; unset: the first on PATH."),
    click.option("--no-cache", is_flag=True, help="Build all of it, even if the registry has it."),
)
_AWS_OPTIONS = (
    click.option("--profile", help="Of the AWS configuration."),
    click.option("--region", help="Of AWS."),
)
_REPOSITORY_OPTIONS = (
    click.option("--scan-on-push", is_flag=True, help="Of a new ECR repository: look for vulnerabilities."),
    click.option("--immutable-tags", is_flag=True, help="Of a new ECR repository: a tag stays what it is."),
    click.option("--keep-images", type=click.IntRange(1), metavar="N", help="Of a new ECR repository: older ones expire."),
    click.option("--kms-key", metavar="KEY", help="Of a new ECR repository: encrypt with it; `aws/ecr` is AWS's own."),
)


def _with(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def wrap(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return wrap


build_options = _with(*_BUILD_OPTIONS)
aws_options = _with(*_AWS_OPTIONS)


@click.command("push-image")
@click.argument("folder", default=".")
@click.option(
    "--to", metavar="[HOST/]NAME[:TAG]", help="Without a host: the ECR of one's own account. Unset: the folder's name."
)
@click.option("--tag", metavar="TAG", help="`auto`, the default: a hash of all that is built.")
@build_options
@aws_options
@_with(*_REPOSITORY_OPTIONS)
@code_options
@click.option("--pin", metavar="SPEC", help="Write the image, with its digest, into this spec.")
@click.option("-q", "--quiet", is_flag=True, help="Do not show the builder's output.")
@output("name", "json")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def push_image(
    *, pin: str | None, quiet: bool, output: str, code: str | None, onto: str | None, workdir: str | None, **said: Any
) -> None:
    """Build the image of FOLDER, push it unless the registry has it, and print its name with its digest."""
    if pin:
        read_text(pin, "spec")  # before anything is built
    said["profile"] = said["profile"] or settings_here().aws_profile
    outcome: PushResult | CodePushResult
    if code or onto or workdir:
        outcome = push_code(code=code, onto=onto, workdir=workdir, said=said)
    else:
        outcome = build_and_push(image_spec(said), quiet=quiet)
    if pin:
        _pin(Path(pin), str(outcome.ref))
    if output == "json":
        print_json(outcome.describe())
    else:
        click.echo(str(outcome.ref))


def build_and_push(spec: ImageSpec, *, quiet: bool = False) -> PushResult:
    """Build and push, with everything that a terminal wants to see of it on stderr."""
    from kfjob.api.images.push_image import build_and_push as run
    from kfjob.cli.upload_progress import shown

    with shown() as progress:
        outcome = run(spec, _listener(progress, quiet=quiet))
    if outcome.builder:
        sizes = f"{_size(outcome.sent_bytes)} sent, {_size(outcome.reused_bytes)} were there"
        click.echo(f"pushed `{outcome.ref.repository}:{outcome.ref.tag}` in {outcome.seconds:.0f} s: {sizes}", err=True)
    return outcome


def _listener(progress: Callable[[str, int, int], None], *, quiet: bool) -> Listener:
    from kfjob.api.images.push_image import Listener

    def show(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    return Listener(notify=notify, output=show, progress=progress)


def image_spec(said: dict[str, Any]) -> ImageSpec:
    """What the options say of an image.

    Raises:
        SpecError: they do not go together.
        UsageError: one is not of its form.
    """
    from kfjob.spec.image import ImageSpec

    options = ("scan_on_push", "immutable_tags", "keep_images", "kms_key")
    fields = {name: value for name, value in said.items() if name not in options and value not in (None, ())}
    fields["context"] = fields.pop("folder")
    fields["build_args"] = dict(_pair(one, "--build-arg") for one in fields.get("build_args", ()))
    fields["secrets"] = dict(_secret(one) for one in fields.get("secrets", ()))
    fields["repository"] = {name: said[name] for name in options if said.get(name)}
    return ImageSpec.model_validate(fields)


def _pair(text: str, option: str) -> tuple[str, str]:
    from kfjob.errors import UsageError

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"`{option} {text}` is not NAME=VALUE")
    return name, value


def _secret(text: str) -> tuple[str, str]:
    from kfjob.errors import UsageError

    parts = dict(part.partition("=")[::2] for part in text.split(","))
    file = parts.get("src") or parts.get("source")
    if not parts.get("id") or not file:
        raise UsageError(f"`--secret {text}` is not id=ID,src=FILE")
    return parts["id"], file


def _pin(file: Path, image: str) -> None:
    import os
    import tempfile

    from kfjob.errors import BackendError
    from kfjob.spec.pin import pin_image

    place = file.resolve()  # what a link leads to is written, not the link
    try:
        made = pin_image(place.read_bytes().decode(), image, file=str(file))
        with tempfile.NamedTemporaryFile("wb", dir=place.parent, delete=False) as new:
            new.write(made.encode())
        Path(new.name).chmod(place.stat().st_mode & 0o7777)
        os.replace(new.name, place)  # noqa: PTH105 - in one step, so that a spec is never half written
    except OSError as err:
        raise BackendError(f"`{file}` cannot be written", cause=str(err), hint=f"the image is `{image}`") from err
    click.echo(f"pinned in {file}", err=True)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:  # noqa: PLR2004 - SI units
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
