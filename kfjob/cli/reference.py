"""docs/reference/commands.md, made from the commands: `python -m kfjob.cli.reference > docs/reference/commands.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from kfjob.cli.main import COMMANDS, kfjob

_HEAD = """\
# Commands

stdout is data, stderr is talk. [Exit codes](exit-codes.md) tell how a command and a job ended. `kubectl kfjob …` is the same.

This page is made from the commands by `python -m kfjob.cli.reference`.
"""


_WIDTH: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}


def markdown() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(line for name in COMMANDS for line in _section(name))])


def _section(name: str) -> Iterator[str]:
    with click.Context(kfjob, info_name="kfjob", **{**kfjob.context_settings, **_WIDTH}) as top:
        command = kfjob.get_command(top, name)
        assert command is not None  # noqa: S101 - the table of commands names it
        yield from _shown(command, click.Context(command, info_name=name, parent=top, **_WIDTH), f"kfjob {name}")


def _shown(command: click.Command, ctx: click.Context, title: str) -> Iterator[str]:
    text = "\n".join(line.rstrip() for line in command.get_help(ctx).splitlines())
    yield from (f"## {title}", "", "```text", text, "```", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            if inner is not None:
                yield from _shown(inner, click.Context(inner, info_name=name, parent=ctx, **_WIDTH), f"{title} {name}")


if __name__ == "__main__":
    sys.stdout.write(markdown())
