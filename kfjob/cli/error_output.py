"""Print an error: as a message for people or, with `-o json`, as one line of JSON. Both are on standard error."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

import click

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import KfjobError, Problem, SpecError, UsageError
from kfjob.base.text import find_similar
from kfjob.cli.output import colour_marks, print_json, wants_colour

SIMILAR = 0.85
"""Similarity of an unknown option to the one that is meant, before a field of the spec is."""


def print_error(err: KfjobError, argv: Sequence[str]) -> None:
    """Print an error of a command that was called with `argv`."""
    if _wants_json(argv):
        print_json({"error": describe_error(err)}, err=True)
    else:
        click.echo(colour_marks(str(err)), err=True, color=wants_colour())


def describe_error(err: KfjobError) -> JsonObject:
    """Return the error as data for JSON; a SpecError has all its problems, the same as in `kfjob validate -o json`."""
    parts: JsonObject = {"message": err.title, "location": err.location, "cause": err.cause, "hint": err.hint}
    if isinstance(err, SpecError):
        parts["problems"] = [describe_problem(problem) for problem in err.problems]
    return {"kind": type(err).__name__, **parts, "exit_code": err.exit_code}


def describe_problem(problem: Problem) -> JsonObject:
    """Return the problem as data for JSON."""
    fields = {name: value or None for name, value in asdict(problem).items()}
    return {"severity": fields.pop("severity"), "message": fields.pop("title"), "field": fields.pop("path"), **fields}


def _wants_json(argv: Sequence[str]) -> bool:
    """Return whether the arguments have `-o json`; a command line that click cannot parse has no parsed options."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    is_pair = any(option in ("-o", "--output") and value == "json" for option, value in pairwise(options))
    return is_pair or any(word in ("-ojson", "--output=json") for word in options)


def _describe_call(ctx: click.Context) -> str:
    """Return the command with its arguments: `kfjob scale JOB NODES`."""
    arguments = [param.human_readable_name for param in ctx.command.params if isinstance(param, click.Argument)]
    return " ".join((ctx.command_path, *arguments))


def _find_field(option: str, ctx: click.Context) -> str:
    """Return the field of a job spec that an unknown option names, if the command has `--set`; "" without one."""
    if not any("--set" in param.opts for param in ctx.command.params):
        return ""
    from kfjob.base.text import snake_case
    from kfjob.spec.job import JobSpec
    from kfjob.validation.field_paths import join_path
    from kfjob.validation.field_suggestions import suggest_field

    name = snake_case(option)
    field = (name,) if name in JobSpec.model_fields else suggest_field((name,), JobSpec).field
    return join_path(field) if field else ""


def print_usage_error(err: click.ClickException, argv: Sequence[str]) -> int:
    """Print an error of click, and return the exit code. A group of commands without a command prints its help."""
    if isinstance(err, click.exceptions.NoArgsIsHelpError):
        click.echo(err.format_message())
        return 0
    message, hint = _explain_usage_error(err)
    ctx = getattr(err, "ctx", None)
    if ctx and (ctx.parent is None or any(param.name == "spec" for param in ctx.command.params)):
        hint = _suggest_run(argv[len(ctx.command_path.split()) - 1 :], 1 if ctx.parent is None else len(argv)) or hint
    print_error(UsageError(message, hint=hint), argv)
    return err.exit_code


def _suggest_run(argv: Sequence[str], count: int) -> str | None:
    """Return the hint for arguments of which one of the first `count` begins the command of a job: `submit torchrun a.py`."""
    from kfjob.shell.commands import PYTHON_STARTERS, is_python, suggest_start

    for index, word in enumerate(argv[:count]):
        if start := word if word in PYTHON_STARTERS or is_python(word) else suggest_start(word):
            return f"`kfjob run -- {' '.join((start, *map(shlex.quote, argv[index + 1 :])))}` runs a command as a job"
    return None


def _explain_usage_error(err: click.ClickException) -> tuple[str, str | None]:
    """Return the message of click's error in the words of this project, and a hint."""
    message = re.sub(r"'([\w./:=-]+)'", r"`\1`", err.format_message()).rstrip(".")
    message = f"{message[:1].lower()}{message[1:]}"
    ctx = getattr(err, "ctx", None)
    if ctx is None:
        return message, None
    usage = f"`{ctx.command_path} --help` shows the usage"
    if isinstance(err, click.MissingParameter) and err.param and err.param.name in ("job", "jobs"):
        from kfjob.cli.completion import suggest_jobs

        return "JOB is missing", f"{suggest_jobs(ctx)}{usage}"
    if not isinstance(err, click.NoSuchOption):
        is_argument = isinstance(err, click.MissingParameter) and isinstance(err.param, click.Argument)
        return message, f"`{_describe_call(ctx)}`; {usage}" if is_argument else usage
    return _explain_unknown_option(err, ctx, usage)


def _explain_unknown_option(err: click.NoSuchOption, ctx: click.Context, usage: str) -> tuple[str, str]:
    """Return the message about an option that the command does not have, and a hint at what is meant."""
    title = f"unknown option `{err.option_name}`"
    if names := [name for param in ctx.command.params for name in param.opts if name.startswith(err.option_name)]:
        return f"{title}; did you mean {_join_choices(names)}?", usage
    if similar := find_similar(err.option_name, err.possibilities or (), cutoff=SIMILAR):
        return f"{title}; did you mean `{similar}`?", usage
    arguments = {param.name for param in ctx.command.params if isinstance(param, click.Argument)}
    if err.option_name.lstrip("-") in arguments:
        return f"{title}: `{err.option_name.lstrip('-').upper()}` is an argument", f"`{_describe_call(ctx)}`; {usage}"
    if err.option_name == "--dry-run" and ctx.command.name == "run":
        return title, "`--save -` prints the spec, and `kfjob submit SPEC --dry-run=client` what a submit would create"
    if field := _find_field(err.option_name, ctx):
        return title, f"`--set {field}=VALUE` sets this field of the spec"
    if err.possibilities:
        title += f"; did you mean {_join_choices(err.possibilities)}?"
    return title, usage


def _join_choices(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)
