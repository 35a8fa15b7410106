"""The commands of kfjob as click has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kfjob.cli.commands import kfjob

WIDTH: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}


def contexts() -> Iterator[click.Context]:
    """Yield the context of every command and subcommand, the top-level command first."""
    with click.Context(kfjob, info_name="kfjob", **{**kfjob.context_settings, **WIDTH}) as top:
        yield from _walk(top)


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            command = context.command.get_command(context, name)
            assert command is not None
            yield from _walk(click.Context(command, info_name=name, parent=context, **WIDTH))
