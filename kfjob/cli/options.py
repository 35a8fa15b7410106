"""Options that several commands share, and the way from them to a place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kfjob.api.config import Settings, settings_here
from kfjob.errors import NotFound

Command = Callable[..., Any]


_BACKEND_HELP = "Where jobs run; unset: kubernetes if there is a kubeconfig, else local."


def where(command: Command) -> Command:
    """`--backend`, `--context`, `--namespace`, `--debug`: given to the command as one `settings`."""

    @click.option("--backend", type=click.Choice(["kubernetes", "local"]), help=_BACKEND_HELP)
    @click.option("--context", help="Context of the kubeconfig.")
    @click.option("-n", "--namespace", help="Namespace; unset: the context's.")
    @click.option("--debug", is_flag=True, help="Show tracebacks.")
    def wrapped(*, backend: str | None, context: str | None, namespace: str | None, debug: bool, **rest: Any) -> Any:  # noqa: ARG001
        return command(settings=settings_here(backend=backend, context=context, namespace=namespace), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    inner = getattr(command, "__click_params__", [])
    wrapped.__click_params__ = [*inner, *wrapped.__click_params__]  # type: ignore[attr-defined]
    return wrapped


def output(*formats: str) -> Callable[[Command], Command]:
    """`-o`, the form of what is printed; the first is the default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], show_default=True, help="Form of the output.")


from_option: Callable[[Command], Command] = click.option(
    "--from", "folder", metavar="DIR", help="Read a folder of saved logs instead of asking a backend."
)


def notice(text: str) -> None:
    """Say something that is not data."""
    click.echo(click.style("note: ", dim=True, fg="cyan") + text, err=True)


def read_spec(file: str) -> tuple[str, str]:
    """The text of a spec and the name to use for it in messages; `-` is standard input.

    Raises:
        NotFound: the file is not there or cannot be read.
    """
    if file == "-":
        return click.get_text_stream("stdin").read(), "<stdin>"
    try:
        return Path(file).read_text(encoding="utf-8"), file
    except FileNotFoundError as err:
        raise NotFound(f"spec `{file}` does not exist", hint="`examples/` holds specs to begin with") from err
    except (OSError, UnicodeDecodeError) as err:
        raise NotFound(f"spec `{file}` cannot be read", cause=str(err)) from err


__all__ = ["Settings", "from_option", "notice", "output", "read_spec", "where"]
