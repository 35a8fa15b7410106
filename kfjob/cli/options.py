"""Options that several commands share, and the way from them to a place."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.api.settings import Settings, settings_here
from kfjob.errors import NotFound, UsageError

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.spec.source import LoadedSpec

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


def strict(command: Command) -> Command:
    """`--strict`, for commands that lint what they read: put into the `settings` that `where` gives."""

    @click.option("--strict", is_flag=True, help="What lint warns of is an error.")
    def wrapped(*, strict: bool, settings: Settings, **rest: Any) -> Any:
        return command(settings=replace(settings, strict=strict or settings.strict), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = [*getattr(command, "__click_params__", []), *wrapped.__click_params__]  # type: ignore[attr-defined]
    return wrapped


def code(command: Command) -> Command:
    """`--code` and what belongs to it, given as one `code`; `--no-image-check`, put into the `settings` that `where` gives."""

    @click.option("--code", "code_folder", metavar="DIR", help="Put this folder onto the job's image, and run that.")
    @click.option("--code-to", metavar="REPOSITORY[:TAG]", help="Where the image with the code goes; unset: beside the job's.")
    @click.option("--workdir", metavar="PATH", help="Where in the image the code goes; unset: its working directory.")
    @click.option("--no-image-check", is_flag=True, help="Do not ask the registry whether the image is there.")
    def wrapped(
        *,
        code_folder: str | None,
        code_to: str | None,
        workdir: str | None,
        no_image_check: bool,
        settings: Settings,
        **rest: Any,
    ) -> Any:
        if (code_to or workdir) and not code_folder:
            raise UsageError("`--code-to` and `--workdir` are about code", hint="name its folder with `--code DIR`")
        settings = replace(settings, image_check=settings.image_check and not no_image_check)
        return command(settings=settings, code=_code(code_folder, code_to, workdir), **rest)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = [*getattr(command, "__click_params__", []), *wrapped.__click_params__]  # type: ignore[attr-defined]
    return wrapped


def _code(folder: str | None, to: str | None, workdir: str | None) -> CodeLayer | None:
    if not folder:
        return None
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.cli.upload_progress import shown

    return CodeLayer(folder=Path(folder), target=to, workdir=workdir, show_progress=shown)


def output(*formats: str) -> Callable[[Command], Command]:
    """`-o`, the form of what is printed; the first is the default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], show_default=True, help="Form of the output.")


from_option: Callable[[Command], Command] = click.option(
    "--from", "folder", metavar="DIR", help="Read a folder of saved logs instead of asking a backend."
)


def print_json(value: dict[str, Any]) -> None:
    """One value, one line."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def notify(text: str) -> None:
    """Say something that is not data; a warning of lint is one in itself."""
    mark, text = ("warning: ", text[9:]) if text.startswith("warning: ") else ("note: ", text)
    click.echo(click.style(mark, dim=mark == "note: ", fg="cyan" if mark == "note: " else "yellow") + text, err=True)


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a command was told of the job: a spec or a template, and what to put into it."""

    spec: str | None
    template: str | None = None
    assignments: tuple[str, ...] = ()
    env_files: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file, as messages call it."""
        file = self.template or self.spec
        return "<stdin>" if file in (None, "-") else str(file)

    def values(self) -> dict[str, str]:
        """What the env files give, and over it the single variables.

        Raises:
            NotFound: a file is not there.
            SpecError: a file or a variable is not well formed.
        """
        from kfjob.errors import Problem, SpecError
        from kfjob.spec.env_file import parse_env_file

        values: dict[str, str] = {}
        for file in self.env_files:
            values |= parse_env_file(read_text(file, "env file"), file=file)
        for variable in self.variables:
            name, equals, value = variable.partition("=")
            if not equals or not name.isidentifier():
                raise SpecError([Problem(title="a variable is `NAME=VALUE`", file=f"--var {variable}")])
            values[name] = value
        return values

    def text(self) -> str:
        """What stands in the file."""
        file = self.template or self.spec
        return read_text(str(file or "-"), "template" if self.template else "spec")


_SPEC_OPTIONS = (
    click.option("--set", "assignments", multiple=True, metavar="FIELD=VALUE", help="Put a value over the spec's."),
    click.option("--env-file", "env_files", multiple=True, metavar="FILE", help="Values for `${NAME}` in the text."),
    click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="One such value, over the files'."),
)
_TEMPLATE_OPTIONS = (
    click.option("--template", metavar="FILE", help="A manifest template, instead of a spec."),
    click.option("--keep", multiple=True, metavar="NAME", help="Leave `${NAME}` in the template for the pod."),
)


def spec(command: Command) -> Command:
    """The argument SPEC and what is put into it: given to the command as one `source`."""
    return _sourced(command, click.argument("spec"), *_SPEC_OPTIONS)


def spec_or_template(command: Command) -> Command:
    """The same, or `--template` instead of SPEC."""
    return _sourced(command, click.argument("spec", required=False), *_TEMPLATE_OPTIONS, *_SPEC_OPTIONS)


def _sourced(command: Command, *options: Callable[[Command], Command]) -> Command:
    names = {field.name for field in fields(Source)}

    def wrapped(**given: Any) -> Any:
        said = {name: given.pop(name) for name in names & set(given)}
        if said.get("template") and (said["spec"] or said["assignments"]):
            extra = "SPEC" if said["spec"] else "`--set`"
            raise UsageError(
                f"{extra} and `--template` do not go together", hint="a template's values come from `--env-file`, `--var`"
            )
        if not said.get("template") and not said["spec"]:
            raise UsageError("nothing was named to read", hint="name a SPEC, `-` for standard input, or `--template FILE`")
        return command(source=Source(**said), **given)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    made: Command = wrapped
    for option in reversed(options):
        made = option(made)
    return made


def read_spec(source: Source) -> LoadedSpec:
    """The spec that was named.

    Raises:
        NotFound: the file is not there or cannot be read.
        SpecError: every problem of the spec.
    """
    from kfjob.spec.source import load_spec

    return load_spec(source.text(), file=source.name, assignments=source.assignments, variables=source.values())


def read_text(file: str, what: str) -> str:
    """The text of a file, `-` being standard input; `what` it is called in messages.

    Raises:
        NotFound: the file is not there or cannot be read.
    """
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as err:
        hint = "`examples/` holds specs to begin with" if what == "spec" else None
        raise NotFound(f"{what} `{file}` does not exist", hint=hint) from err
    except (OSError, UnicodeDecodeError) as err:
        raise NotFound(f"{what} `{file}` cannot be read", cause=str(err)) from err


__all__ = [
    "Settings",
    "Source",
    "code",
    "from_option",
    "notify",
    "output",
    "read_spec",
    "read_text",
    "spec",
    "spec_or_template",
    "strict",
    "where",
]
