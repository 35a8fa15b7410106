"""list, status: the commands that look at a job."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, from_option, notify, output, where

if TYPE_CHECKING:
    from kfjob.api.run import Run


def open_run(job: str | None, folder: str | None, settings: Settings) -> Run:
    """The job that was named, or the folder of `--from`."""
    from kfjob.api.attach import attach
    from kfjob.errors import UsageError

    if folder is not None:
        from kfjob.api.run import from_folder

        return from_folder(Path(folder), settings=settings)
    if job is None:
        raise UsageError("no job was named", hint="`kfjob list` shows the jobs; `--from DIR` reads saved logs")
    return attach(job, settings=settings, notify=notify)


@click.command("list")
@output("table", "json")
@where
def list_jobs(*, output: str, settings: Settings) -> None:
    """List the jobs of a namespace, those that kfjob did not submit too."""
    from kfjob.api.target import find_target
    from kfjob.cli import text

    target = find_target(settings, notify=notify)
    jobs = target.backend.list(namespace=target.namespace)
    if output == "json":
        keys = ("name", "namespace", "launch", "uid", "image")
        rows = [{key: getattr(j, key) for key in keys} | {"phase": j.job.phase, "created": j.job.created} for j in jobs]
        click.echo(json.dumps(rows, indent=2))
        return
    now = time.time_ns()
    lines = [(j.name, str(j.job.phase), text.age(j.job.created, now), j.launch or "-") for j in jobs]
    click.echo(text.table(("NAME", "STATE", "AGE", "LAUNCH"), lines))


@click.command()
@click.argument("job", required=False)
@from_option
@output("text", "json")
@where
def status(*, job: str | None, folder: str | None, output: str, settings: Settings) -> None:
    """Show a job: its state, its pods, how far training is and who prints it."""
    from kfjob.cli import text

    run = open_run(job, folder, settings)
    view = run.view(recorded=True)
    if output == "json":
        click.echo(json.dumps(run.describe() | text.view_json(view), indent=2))
    else:
        click.echo(text.status_text(view, name=run.name, now=time.time_ns()))
