"""The command `progress`: show which lines of a log are training progress, and try a pattern on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.errors import SpecError, UsageError
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import open_reader
from kfjob.cli.options import Settings, from_option, output_option, target_options
from kfjob.cli.output import print_json

if TYPE_CHECKING:
    from kfjob.joblog.view.job_view import JobView

_NOTHING = (
    "no line looks like training progress; `--progress PATTERN` tries a pattern with a group `(?P<step>…)` or `(?P<loss>…)`, "
    "for `progress:` in the spec"
)


@click.command()
@click.argument("job", required=False, metavar="LOG|JOB", type=JOB)
@from_option
@click.option("--progress", "pattern", metavar="PATTERN", help="Try this regular expression, as `progress` in a spec.")
@output_option("text", "json")
@target_options
def progress(*, job: str | None, folder: str | None, pattern: str | None, output: str, settings: Settings) -> None:
    """Show the layouts of lines that kfjob takes for training progress, and the values in them.

    LOG is a log file, also compressed as `.gz`, or `-` for standard input. With `--progress`, show what the
    pattern reads instead.
    """
    if pattern is not None:
        from kfjob.joblog.progress.pattern import refuse_pattern

        refuse_pattern(pattern)
    try:
        view = _read(job, folder, pattern, settings)
    except SpecError as error:
        raise UsageError(str(error)) from error
    rows = list(_rows(view))
    if output == "json":
        print_json({"pod": view.training.pod or None, "templates": rows}, indent=2)
        return
    for row in rows:
        click.echo(f"{row['state']:<6}  {row['pod']}  {row['lines']} lines  {row['example']}")
    from kfjob.cli.view_text import no_progress_text, progress_line

    click.echo(progress_line(view) or no_progress_text(view) or _NOTHING)


def _read(job: str | None, folder: str | None, pattern: str | None, settings: Settings) -> JobView:
    """Return the view of a log file, or of the logs of a job."""
    from kfjob.api.view import read_view

    if job is not None and folder is None and (job == "-" or _is_path(job)):
        job, folder = None, job
    reader = open_reader(job, folder, settings)
    if pattern is None:
        return read_view(reader)
    return read_view(reader, pattern=pattern)


def _is_path(name: str) -> bool:
    """Return whether the argument is a file, or is written as one."""
    return Path(name).is_file() or "/" in name or name.endswith((".log", ".txt", ".out", ".gz"))


def _rows(view: JobView) -> list[dict[str, Any]]:
    """Return the layouts of each pod, the one that counts first."""
    rows = []
    for pod in view.pods.values():
        reader = pod.log.general
        for key, template in reader.templates.items():
            state = "counts" if key == reader.primary else "read" if template.confirmed else "unread"
            values = sorted(template.fields)
            rows.append(
                {"pod": pod.name, "state": state, "lines": template.lines, "values": values, "example": template.example}
            )
        if not reader.templates and pod.log.reading and pod.log.reading_line:
            state, example = pod.log.reading.format, pod.log.reading_line.text
            rows.append({"pod": pod.name, "state": state, "lines": view.training.lines, "values": [], "example": example})
    return sorted(rows, key=lambda row: (row["state"] != "counts", row["state"], -row["lines"]))
