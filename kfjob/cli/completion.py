"""The command `completion`, and the argument types that complete names of jobs, pods, models and instance types."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.errors import UsageError
from kfjob.base.text import join_names
from kfjob.cli.output import write_data

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kfjob.api.target import Target

VARIABLE = "_KFJOB_COMPLETE"
"""The variable with which the shell asks for completions; click derives it from the name of the program."""
COMPLETION_SECONDS = 2.0
"""Timeout of a cluster's response to a shell completion."""


@click.command()
@click.argument("shell", required=False, metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str | None) -> None:
    """Print the completion script of a shell.

    It completes commands, options, files, and the names of jobs, pods, model presets and instance types.

    \b
    bash:  eval "$(kfjob completion bash)"   in ~/.bashrc
    zsh:   eval "$(kfjob completion zsh)"    in ~/.zshrc, after compinit
    fish:  kfjob completion fish | source    in ~/.config/fish/config.fish
    """  # noqa: D301 - \b marks a block that click does not rewrap
    if shell is None:
        raise UsageError("SHELL is missing", hint='`eval "$(kfjob completion bash)"`, or `zsh`, or `fish`')
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is not None:
        script = kind(click.get_current_context().find_root().command, {}, "kfjob", VARIABLE)
        write_data(script.source() + "\n")


class Name(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A text that the shell completes from a list of names."""

    name = "text"

    def __init__(self, list_names: Callable[[click.Context], Iterable[str]]) -> None:
        """Complete the names that the function returns."""
        self._list_names = list_names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - click's signature
        """Return the value."""
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin with the text."""
        from click.shell_completion import CompletionItem

        used = ctx.params.get(param.name or "")
        used = used if isinstance(used, tuple | list) else ()
        names = sorted({*self._list_names(ctx)} - {*used})
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _list_jobs(ctx: click.Context) -> list[str]:
    """Return the jobs of both backends and of the archive."""
    return _collect(ctx, lambda target: target.list_names())


def _list_live_jobs(ctx: click.Context) -> list[str]:
    """Return the jobs of both backends."""
    return _collect(ctx, lambda target: [job.name for job in target.backend.list(namespace=target.namespace)])


def _list_pods(ctx: click.Context) -> list[str]:
    job = ctx.params.get("job") or next(iter(ctx.args), "")  # click leaves it in `args` while the option has no value
    return _collect(ctx, lambda target: [pod.pod for pod in target.read_job(job).pods]) if job else []


def _list_presets(_ctx: click.Context) -> Iterable[str]:
    from kfjob.trainspec.model_shapes import PRESETS

    return PRESETS


def _list_instances(_ctx: click.Context) -> Iterable[str]:
    from kfjob.spec.instances import load_catalogue

    return load_catalogue()


def _collect(ctx: click.Context, read: Callable[[Target], Iterable[str]]) -> list[str]:
    """Return what `read` finds within `COMPLETION_SECONDS` on the targets of the command line; one that fails has nothing."""
    from kfjob.api.settings import load_current_settings
    from kfjob.api.target import list_targets

    names: set[str] = set()

    def add_names(target: Target) -> None:
        with suppress(Exception):  # a completion never prints an error
            names.update(read(target))

    with suppress(Exception):
        options = {key: ctx.params.get(key) for key in ("backend", "context", "namespace")}
        threads = [
            threading.Thread(target=add_names, args=(target,), daemon=True)
            for target in list_targets(load_current_settings(**options))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(COMPLETION_SECONDS)
    return list(names)


def suggest_jobs(ctx: click.Context) -> str:
    """Return the beginning of a hint for a command without its JOB: the jobs that it could name; "" without any."""
    names = sorted(_list_live_jobs(ctx)) or sorted(_list_jobs(ctx))
    if not names:
        return ""
    listed = f"the only job is `{names[0]}`" if len(names) == 1 else f"the jobs are {join_names(f'`{name}`' for name in names)}"
    return f"{listed}: `{ctx.command_path} {shlex.quote(names[0])}`; "


JOB, LIVE_JOB, POD, INSTANCE = Name(_list_jobs), Name(_list_live_jobs), Name(_list_pods), Name(_list_instances)
MODEL = Name(_list_presets)
FILE = click.Path()
