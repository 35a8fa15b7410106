"""report: a job as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from kfjob.cli.options import Settings, from_option, where


@click.command()
@click.argument("job", required=False)
@click.option("-o", "--output", "file", metavar="FILE", help="Where to write it; `-` is stdout.  [default: JOB-report.html]")
@from_option
@where
def report(*, job: str | None, file: str | None, folder: str | None, settings: Settings) -> None:
    """Write a job's report: one HTML file that needs nothing else.

    It has the curves of loss, speed and learning rate, a timeline of pods, restarts and rounds, the diagnosis, the warnings,
    the events of the cluster and the spec. All logs are read for it. The file's name is printed.
    """
    from kfjob.cli.status import open_run
    from kfjob.errors import UsageError

    run = open_run(job, folder, settings)
    html: bytes = run.report().encode("utf-8", "replace")
    if file == "-":
        click.echo(html, nl=False)
        return
    target = Path(file or f"{run.name}-report.html")
    try:
        target.write_bytes(html)
    except OSError as err:
        hint = "name another file with `-o`"
        raise UsageError(f"`{target}` cannot be written", cause=err.strerror or str(err), hint=hint) from err
    click.echo(target)
