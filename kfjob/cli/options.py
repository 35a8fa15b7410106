"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kfjob.api.settings import Settings, expand_path, load_current_settings
from kfjob.base.capabilities import CAPABILITIES, TARGETS
from kfjob.base.errors import UsageError
from kfjob.base.text import find_similar
from kfjob.cli.completion import FILE
from kfjob.cli.output import repeat_backend, repeat_options

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer

Result = TypeVar("Result")
Command = Callable[..., Result]
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_BACKEND_HELP = "Backend that runs the job. Default: kubernetes if a kubeconfig exists, else local."
_TARGET_HELP = "Kind of the job on a cluster, instead of the spec's: `pytorchjob`, `trainjob` or `auto`."
debug_option: Decorator = click.option("--debug", is_flag=True, expose_value=False, help="Show a traceback on errors.")
quiet_option: Decorator = click.option(
    "-q", "--quiet", is_flag=True, help="Do not print the program's output while the job is followed."
)
include_option: Decorator = click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Add this file with --code, even if it looks like a secret. Repeatable.",
)
from_option: Decorator = click.option(
    "--from",
    "folder",
    metavar="PATH",
    type=FILE,
    help="Read saved logs: a directory, a log (also `.gz`), a file of `kfjob archive`, `-` for standard input, or the "
    "`s3://BUCKET/…` of a launch.",
)
progress_option: Decorator = click.option(
    "--progress",
    "pattern",
    metavar="PATTERN",
    help="Regular expression of progress lines; with `--from`, as `progress` in a spec.",
)

_TARGET_OPTIONS: tuple[Decorator, ...] = (
    click.option("--backend", type=click.Choice([*CAPABILITIES]), help=_BACKEND_HELP),
    click.option("--context", metavar="NAME", help="Kubeconfig context. Default: the current context."),
    click.option("-n", "--namespace", metavar="NAME", help="Kubernetes namespace. Default: the namespace of the context."),
    debug_option,
)


def combine(*options: Decorator) -> Decorator:
    """Return one decorator that adds the options in this order."""
    return lambda command: functools.reduce(lambda decorated, option: option(decorated), reversed(options), command)


def collect_options(parameter: str, values: type[Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds the options; the command receives them as one `parameter`, an instance of a struct."""
    names = values.__struct_fields__

    def decorate(command: Command[Result]) -> Command[Result]:
        @functools.wraps(command)
        def with_values(**parameters: object) -> Result:
            options = {name: parameters.pop(name) for name in names if name in parameters}
            return command(**{parameter: values(**options)}, **parameters)

        return with_values

    return lambda command: combine(*options)(decorate(command))


def target_options(command: Command[Result]) -> Command[Result]:
    """Add `--backend`, `--context`, `--namespace` and `--debug`; the command receives them as `settings`.

    The help lists them after the command's own options.
    """

    @functools.wraps(command)
    def with_settings(*, backend: str | None, context: str | None, namespace: str | None, **parameters: object) -> Result:
        repeat_options(("-n", namespace), ("--context", context))
        settings = load_current_settings(backend=backend, context=context, namespace=namespace)
        if backend and _is_other_backend(backend, context):
            repeat_backend(backend)
        return command(settings=settings, **parameters)

    decorated = combine(*_TARGET_OPTIONS)(with_settings)
    parameters: list[click.Parameter] = vars(decorated)["__click_params__"]  # click shows them in reverse order
    parameters[:] = [*parameters[-len(_TARGET_OPTIONS) :], *parameters[: -len(_TARGET_OPTIONS)]]
    return decorated


def kind_option(command: Command[Result]) -> Command[Result]:
    """Add `--target`, for commands that take a spec; it changes the `settings` of `target_options`."""

    @click.option("--target", metavar="KIND", type=click.Choice(TARGETS), help=_TARGET_HELP)
    @functools.wraps(command)
    def with_kind(*, target: str | None, settings: Settings, **parameters: object) -> Result:
        if target:
            from kfjob.kinds.registry import find_target_kind

            settings = replace(settings, job_kind=find_target_kind(target) or target)
        return command(settings=settings, **parameters)

    return with_kind


def _is_other_backend(name: str, context: str | None) -> bool:
    """Return whether a command without `--backend` would select another backend."""
    from kfjob.api.target import explain_backend

    return name != explain_backend(load_current_settings(context=context))[0]


def strict_option(command: Command[Result]) -> Command[Result]:
    """Add `--strict` and `--ignore`, for commands that lint; they change the `settings` of `target_options`."""

    @click.option("--strict", is_flag=True, help="Treat lint warnings as errors.")
    @click.option("--ignore", multiple=True, metavar="RULE,…", help="Turn lint rules off for this command. Repeatable.")
    @functools.wraps(command)
    def with_strict(*, strict: bool, ignore: tuple[str, ...], settings: Settings, **parameters: object) -> Result:
        settings = replace(settings, strict=strict or settings.strict, ignore=_read_rules(ignore))
        return command(settings=settings, **parameters)

    return with_strict


def _read_rules(values: tuple[str, ...]) -> frozenset[str]:
    """Return the lint rules of `--ignore`.

    Raises:
        UsageError: there is no such rule.
    """
    rules = frozenset(name for value in values for name in value.replace(",", " ").split())
    if rules:
        from kfjob.lint.catalogue import BY_ID

        for name in sorted(rules - BY_ID.keys()):
            similar = find_similar(name, BY_ID)
            hint = f"did you mean `{similar}`?" if similar else "docs/reference/lint.md lists the rules"
            raise UsageError(f"there is no lint rule `{name}` to ignore", hint=hint)
    return rules


def python_option(command: Command[Result]) -> Command[Result]:
    """Add `--python`, for commands that look for a local job's programs; it changes the `settings` of `target_options`."""

    @click.option(
        "--python",
        metavar="PATH",
        type=FILE,
        help="Python or virtual environment for jobs on this machine. Default: the first on PATH.",
    )
    @functools.wraps(command)
    def with_python(*, python: str | None, settings: Settings, **parameters: object) -> Result:
        if python:
            settings = replace(settings, local_python=expand_path(python))
        return command(settings=settings, **parameters)

    return with_python


def code_options(command: Command[Result]) -> Command[Result]:
    """Add the options of a code layer; the command receives them as `code`, which is None without `--code`.

    `--no-image-check` changes the `settings` of `target_options`.
    """

    @click.option(
        "--code",
        "code_folder",
        metavar="DIR",
        type=FILE,
        help="Add this directory to the job's image as a layer; run that image.",
    )
    @click.option(
        "--code-to", metavar="REPOSITORY[:TAG]", help="Image to push with --code. Default: the repository of the job's image."
    )
    @click.option(
        "--workdir", metavar="PATH", help="Directory in the image for --code. Default: the image's working directory."
    )
    @include_option
    @click.option("--no-image-check", is_flag=True, help="Skip the check that the registry has the image.")
    @functools.wraps(command)
    def with_code(
        *,
        code_folder: str | None,
        code_to: str | None,
        workdir: str | None,
        include: tuple[str, ...],
        no_image_check: bool,
        settings: Settings,
        **parameters: object,
    ) -> Result:
        if (code_to or workdir or include) and not code_folder:
            option = "--code-to" if code_to else "--workdir" if workdir else "--include"
            raise UsageError(f"`{option}` needs `--code`", hint="`--code DIR` names the directory with the code")
        settings = replace(settings, image_check=settings.image_check and not no_image_check)
        return command(settings=settings, code=_code_layer(code_folder, code_to, workdir, include), **parameters)

    return with_code


def _code_layer(folder: str | None, to: str | None, workdir: str | None, include: tuple[str, ...]) -> CodeLayer | None:
    if not folder:
        return None
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.cli.console import show_uploads

    return CodeLayer(folder=Path(folder), new_image=to, workdir=workdir, include=include, show_progress=show_uploads)


def output_option(*formats: str) -> Decorator:
    """Return the option `-o`; the first format is the default."""
    choice = click.Choice(formats)
    return click.option("-o", "--output", type=choice, default=formats[0], show_default=True, help="Output format.")


def notify(text: str) -> None:
    """Print a note to stderr; a text that begins with `warning: ` is printed as a warning."""
    mark = "warning: " if text.startswith("warning: ") else "note: "
    text = text.removeprefix(mark)
    click.echo(click.style(mark, dim=mark == "note: ", fg="cyan" if mark == "note: " else "yellow") + text, err=True)


__all__ = [
    "Settings",
    "code_options",
    "collect_options",
    "combine",
    "debug_option",
    "from_option",
    "include_option",
    "kind_option",
    "notify",
    "output_option",
    "progress_option",
    "python_option",
    "quiet_option",
    "strict_option",
    "target_options",
]
