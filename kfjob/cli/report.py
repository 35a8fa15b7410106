"""The command `report`."""

from __future__ import annotations

from pathlib import Path

import click

from kfjob.backends.folder import check_name
from kfjob.base.errors import UsageError
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import open_reader
from kfjob.cli.options import Settings, from_option, progress_option, target_options
from kfjob.cli.output import write_bytes, write_page

_FORMATS = ("json", "yaml", "text", "table", "name", "html")


@click.command()
@click.argument("job", required=False, type=JOB)
@click.option("-o", "--output", "file", metavar="FILE", help="Output file; `-` is stdout. Default: JOB-report.html.")
@from_option
@progress_option
@target_options
def report(*, job: str | None, file: str | None, folder: str | None, pattern: str | None, settings: Settings) -> None:
    """Write a report of a job as one self-contained HTML file, and print the file's name.

    The report shows the curves of loss, speed and learning rate, a timeline of pods, restarts and rendezvous rounds, the
    diagnosis, the warnings, the events of the cluster, and the spec. It reads all logs of the job.
    """
    from kfjob.api.report import make_report

    if file in _FORMATS:
        hint = f"`kfjob status JOB -o json` prints the job for programs; for a file of this name, write `-o ./{file}`"
        raise UsageError(f"`-o` of `kfjob report` takes a file, not the format `{file}`", hint=hint)
    reader = open_reader(job, folder, settings, pattern=pattern)
    html = make_report(reader)
    if file == "-":
        write_bytes(html.encode("utf-8", "replace"))
        return
    path = Path(file or f"{check_name(reader.ref.name)}-report.html")
    write_page(path, html, option="-o")
    click.echo(path)
