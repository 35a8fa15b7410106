"""The command `archive`: one file with a job's logs and states, to send to somebody."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kfjob.base.text import join_names
from kfjob.cli.completion import FILE, JOB
from kfjob.cli.open_reader import MAX_NAMES, open_live_or_archived
from kfjob.cli.options import Settings, notify, target_options


@click.command()
@click.argument("job", type=JOB)
@click.option("-o", "--output", "file", metavar="FILE", type=FILE, help="Output file. Default: JOB-LAUNCH.zip.")
@target_options
def archive(*, job: str, file: str | None, settings: Settings) -> None:
    """Write the state, the logs, the events and the spec of a job to one file, without secrets, and print the file's name.

    The job is not stopped. `kfjob diagnose`, `status`, `logs`, `master` and `report` read the file with `--from FILE`.
    """
    from kfjob.api.lifecycle.bundle import write_bundle

    bundle = write_bundle(open_live_or_archived(job, settings), Path(file) if file else None)
    if missing := bundle.pods_without_log:
        names = join_names((f"`{pod}`" for pod in missing), limit=MAX_NAMES)
        notify(f"not in the file, because they have no log: {names}")
    click.echo(bundle.file)
    click.echo(f"`kfjob diagnose --from {shlex.quote(str(bundle.file))}` reads it", err=True)
