"""The command `init`: write a first spec."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kfjob.base.errors import KfjobError, UsageError
from kfjob.cli.completion import FILE, INSTANCE, MODEL
from kfjob.cli.output import colour_marks, wants_colour
from kfjob.cli.parameter_types import POSITIVE, WHOLE

DEFAULT_NAME = "train"
"""The name of a job that gets no other."""


@click.command()
@click.argument("file", default="job.yaml", type=FILE)
@click.option("--name", metavar="NAME", help="Name of the job.")
@click.option("--image", metavar="IMAGE", help="Container image of the pods.")
@click.option("--nodes", type=POSITIVE, metavar="N", help="Number of nodes.")
@click.option("--instance", metavar="TYPE", type=INSTANCE, help="Instance type of the nodes; `kfjob instances` lists them.")
@click.option("--gpus", type=WHOLE, metavar="N", help="GPUs per node, if no instance type is named.")
@click.option("--command", metavar="COMMAND", help="Command to run, as one line. Default: the trainer of kfjob.")
@click.option("--model", metavar="MODEL", type=MODEL, help="Model for the trainer: a preset or a directory.")
@click.option("--data", metavar="PATH", type=FILE, help="Training data for the trainer: a file or a directory.")
@click.option("--claim", metavar="NAME", help="PersistentVolumeClaim that all nodes share.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("-y", "--yes", is_flag=True, help="Do not prompt; use the default of every option that is not given.")
def init(
    *,
    file: str,
    name: str | None,
    image: str | None,
    nodes: int | None,
    instance: str | None,
    gpus: int | None,
    command: str | None,
    model: str | None,
    data: str | None,
    claim: str | None,
    force: bool,
    yes: bool,
) -> None:
    """Write a first job spec to FILE (default: job.yaml), and its JSON Schema for editors beside it.

    In a terminal, it prompts for the options that are not given.
    """
    from kfjob.api.specs.init import Answers, write_spec

    options = {
        "name": name,
        "image": image,
        "nodes": nodes,
        "instance": instance,
        "gpus": gpus,
        "command": command,
        "model": model,
        "data": data,
        "claim": claim,
    }
    answers: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    if not yes and sys.stdin.isatty():
        _prompt(answers)
    if yes and "name" not in answers:
        answers["name"] = DEFAULT_NAME
        click.echo(f"note: the job is named `{DEFAULT_NAME}`; `--name NAME` gives another name", err=True)
    if "name" not in answers:
        raise UsageError(
            "the job has no name", hint="add for example `--name llama3`, or `--yes` for the default of each option"
        )
    try:
        shlex.split(answers.get("command", ""))
    except ValueError as err:
        raise UsageError("`--command` cannot be split into words", cause=str(err)) from err
    loaded = write_spec(Path(file), Answers(**answers), force=force)
    click.echo(file)
    click.echo(f"wrote the spec of `{loaded.spec.name}`; `kfjob explain {file}` shows every default", err=True)


def _prompt(answers: dict[str, Any]) -> None:
    """Ask for what `answers` does not hold, and add it; the prompts go to stderr."""
    from kfjob.api.specs.init import check_answer

    def ask(name: str, question: str, default: str, kind: Callable[[str], Any] = str) -> None:
        """Ask until the answer is valid: a wrong one gets its error, as in a spec, and the same question again."""
        while name not in answers:
            text = click.prompt(question, default=default, err=True, show_default=default != "").strip()
            try:
                if text:
                    check_answer(name, text)
                answers[name] = kind(text)
            except KfjobError as err:
                click.echo(colour_marks(str(err)), err=True, color=wants_colour())

    ask("name", "Job name", DEFAULT_NAME)
    ask("image", "Container image (empty: set it later)", "")
    ask("nodes", "Number of nodes", "1", int)
    if "gpus" not in answers:
        ask("instance", "Instance type (empty: any)", "")
        if not answers["instance"]:
            ask("gpus", "GPUs per node", "0", int)
    ask("claim", "PersistentVolumeClaim that all nodes share (empty: none)", "")
    if "model" not in answers and "data" not in answers:
        ask("command", "Command to run (empty: the trainer of kfjob)", "")
