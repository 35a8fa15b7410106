"""The page of the commands: the help of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from kfjob.cli.commands import COMMANDS, kfjob

_INTRODUCTION = """\
# Commands

Commands print data to stdout and messages to stderr. [Exit codes](exit-codes.md) report how a command or a job ended, and
[with `-o json`](exit-codes.md#errors-as-json) an error is JSON, too.
`kubectl kfjob` is the same program.
"""


_WIDTH: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}


def format_page() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *(line for name in COMMANDS for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    with click.Context(kfjob, info_name="kfjob", **{**kfjob.context_settings, **_WIDTH}) as top:
        command = kfjob.get_command(top, name)
        if command is not None:
            yield from _help_block(command, click.Context(command, info_name=name, parent=top, **_WIDTH), f"kfjob {name}")


def _help_block(command: click.Command, ctx: click.Context, title: str) -> Iterator[str]:
    text = "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())
    yield from (f"## {title}", "", "```text", text, "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            subcommand = command.get_command(ctx, name)
            if subcommand is not None:
                context = click.Context(subcommand, info_name=name, parent=ctx, **_WIDTH)
                yield from _help_block(subcommand, context, f"{title} {name}")
