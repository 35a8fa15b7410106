"""Options that several commands share, and the way from them to a place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.api.config import Settings, settings_here
from kfjob.errors import NotFound

if TYPE_CHECKING:
    from kfjob.spec.source import Loaded

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


def spec(command: Command) -> Command:
    """The argument SPEC and `--set`: given to the command as the file's name and the assignments."""
    file = click.argument("spec")
    assign = click.option("--set", "assignments", multiple=True, metavar="FIELD=VALUE", help="Put a value over the spec's.")
    wrapped: Command = file(assign(command))
    return wrapped


def read_spec(file: str, assignments: Sequence[str]) -> Loaded:
    """The spec of a file, `-` being standard input.

    Raises:
        NotFound: the file is not there or cannot be read.
        SpecError: every problem of the spec.
    """
    from kfjob.spec.source import load

    text = sys.stdin.read() if file == "-" else _read(file)
    return load(text, file="<stdin>" if file == "-" else file, assignments=assignments)


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as err:
        raise NotFound(f"spec `{file}` does not exist", hint="`examples/` holds specs to begin with") from err
    except (OSError, UnicodeDecodeError) as err:
        raise NotFound(f"spec `{file}` cannot be read", cause=str(err)) from err


__all__ = ["Settings", "from_option", "notice", "output", "read_spec", "spec", "where"]
