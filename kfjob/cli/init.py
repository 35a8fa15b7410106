"""init: a first spec."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from kfjob.errors import UsageError


@click.command()
@click.argument("file", default="job.yaml")
@click.option("--name", help="Of the job.")
@click.option("--image", help="Of the pods.")
@click.option("--nodes", type=click.IntRange(min=1), help="How many.")
@click.option("--instance", help="Instance type of the nodes (`kfjob instances` lists them).")
@click.option("--gpus", type=click.IntRange(min=0), help="Of one node, where no instance is named.")
@click.option("--rendezvous", type=click.Choice(["c10d", "etcd", "etcd-v2"]), help="How the agents meet.")
@click.option("--command", help="What to run, one line; unset: kfjob's own trainer.")
@click.option("--model", help="For the trainer: a preset or a folder.")
@click.option("--data", help="For the trainer: a file or a folder.")
@click.option("--claim", help="A PersistentVolumeClaim that all nodes share.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: what no flag says is left at its default.")
def init(*, file: str, force: bool, yes: bool, **flags: Any) -> None:
    """Write a first spec to FILE (job.yaml), and the schema for editors beside it. Asks for what no flag says."""
    from kfjob.api.specs.init import Answers, write

    said = {name: value for name, value in flags.items() if value is not None}
    if not yes and sys.stdin.isatty():
        said = _asked(said)
    if "name" not in said:
        raise UsageError("a job needs a name", hint="`--name llama3`; at a terminal `kfjob init` asks for it")
    try:
        shlex.split(said.get("command", ""))
    except ValueError as err:
        raise UsageError("the command cannot be split into words", cause=str(err)) from err
    loaded = write(Path(file), Answers(**said), force=force)
    click.echo(file)
    click.echo(f"wrote the spec of `{loaded.spec.name}`; `kfjob explain {file}` shows what is decided for you", err=True)


def _asked(said: dict[str, Any]) -> dict[str, Any]:
    """What was said, and for the rest the answers of the person at the terminal; the questions go to stderr."""

    def ask(name: str, question: str, default: Any, kind: Any = str) -> None:
        if name not in said:
            said[name] = click.prompt(question, default=default, type=kind, err=True, show_default=default != "")

    ask("name", "name of the job", "train")
    ask("image", "image of the pods (empty: later)", "")
    ask("nodes", "nodes", 1, click.IntRange(min=1))
    if "gpus" not in said:
        ask("instance", "instance type (empty: none)", "")
        if not said["instance"]:
            ask("gpus", "GPUs of one node", 0, click.IntRange(min=0))
    ask("claim", "a PersistentVolumeClaim that all nodes share (empty: none)", "")
    if "model" not in said and "data" not in said:
        ask("command", "command to run (empty: kfjob's own trainer)", "")
    return said
