"""The command `help`."""

from __future__ import annotations

import click

from kfjob.cli.completion import Name


def _list_commands(_ctx: click.Context) -> list[str]:
    from kfjob.cli.commands import COMMANDS

    return list(COMMANDS)


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...", type=Name(_list_commands))
@click.pass_context
def show_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as `kfjob COMMAND --help` does."""
    parent = ctx.find_root()
    command: click.Command = parent.command
    for word in words:
        if not isinstance(command, click.Group):
            raise click.UsageError(f"`{parent.command_path}` has no command `{word}`", parent)
        name, found, _ = command.resolve_command(parent, [word])
        if found is None:
            raise click.UsageError(f"unknown command `{word}`", parent)
        command, parent = found, click.Context(found, info_name=name, parent=parent)
    click.echo(command.get_help(parent))
