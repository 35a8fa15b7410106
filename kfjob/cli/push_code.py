"""push-image --code: a folder onto an image that a registry has, without an engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.options import notify
from kfjob.errors import UsageError
from kfjob.text import plural

if TYPE_CHECKING:
    from kfjob.api.images.push_code import CodePushResult

Command = Callable[..., Any]

_OF_A_BUILD = ("dockerfile", "build_args", "base_image", "secrets", "target", "builder")


def code_options(command: Command) -> Command:
    """`--code`, `--onto`, `--workdir`."""
    for option in (
        click.option("--workdir", metavar="PATH", help="With --code: where in the image; unset: its working directory."),
        click.option("--onto", metavar="IMAGE", help="With --code: the image."),
        click.option("--code", metavar="DIR", help="Build nothing: put this folder onto an image by the registry's API."),
    ):
        command = option(command)
    return command


def push_code(*, code: str | None, onto: str | None, workdir: str | None, said: dict[str, Any]) -> CodePushResult:
    """Put the folder onto the image, with a bar on stderr; `said` holds the other options of push-image.

    Raises:
        UsageError: `--onto` is missing, or an option of a build was named.
    """
    from kfjob.api.images.push_code import push_code as push
    from kfjob.cli.upload_progress import shown

    if not code or not onto:
        raise UsageError("code goes onto an image: name both", hint="`--code DIR --onto IMAGE`")
    if extra := [name for name in _OF_A_BUILD if said.get(name)]:
        raise UsageError(f"nothing is built with `--code`, and `--{extra[0].replace('_', '-')}` is for a build")
    began = time.monotonic()
    with shown() as progress:
        pushed = push(
            Path(code),
            onto,
            target=_target(onto, said),
            workdir=workdir,
            profile=said.get("profile"),
            notify=notify,
            progress=progress,
        )
    took = f"in {time.monotonic() - began:.1f} s"
    what = f"pushed {plural(pushed.files, 'file')} onto `{onto}` {took}" if pushed.is_new else "the registry has it already"
    click.echo(what, err=True)
    return pushed


def _target(onto: str, said: dict[str, Any]) -> str | None:
    to, tag = said.get("to"), said.get("tag")
    if not tag or tag == "auto":
        return str(to) if to else None
    from kfjob.image.references import parse_reference

    return str(parse_reference(to or onto).with_tag(tag))
