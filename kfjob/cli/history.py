"""The commands `history` and `compare`: the launches of a job, and launches side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.errors import UsageError
from kfjob.base.text import plural
from kfjob.cli.completion import FILE, JOB
from kfjob.cli.options import Settings, notify, output_option, target_options
from kfjob.cli.output import colour_states, find_width, hide_secrets, print_json, redact
from kfjob.cli.parameter_types import Count

if TYPE_CHECKING:
    from kfjob.api.compare import Comparison
    from kfjob.api.launches import Launch, LaunchReader

CAUSE_INDENT = "     "
LIST_WIDTH = 80
"""Columns of a table of texts in a file or a pipe; a wider one becomes a list."""
Table = tuple[str, Sequence[Sequence[str]]]
"""The title of the first column, and the rows."""


@click.command()
@click.argument("job", type=JOB)
@click.option("--last", default=20, show_default=True, type=Count(1), metavar="N", help="Number of newest launches to show.")
@output_option("table", "json")
@target_options
def history(*, job: str, last: int, output: str, settings: Settings) -> None:
    """Show the launches of a job: the live one, and those in the archive on this machine.

    A failed launch shows its first cause below. FROM is the checkpoint that it resumed from, as kfjob's trainer reports it.
    """
    from kfjob.api.launches import find_launches, read_launches

    found = find_launches(job, settings, notify=notify)
    if len(found) > last:
        notify(f"{plural(len(found) - last, 'older launch', 'older launches')} not shown: `--last {len(found)}` shows all")
    _hide_secrets(found[-last:])
    launches = read_launches(found[-last:])
    if output == "json":
        print_json([_launch_json(launch) for launch in launches], indent=2)
    else:
        click.echo(colour_states(_format_history(launches)))


@click.command()
@click.argument("jobs", nargs=-1, metavar="JOB…", type=JOB)
@click.option("--from", "folders", multiple=True, metavar="PATH", type=FILE, help="Read saved logs too. Repeatable.")
@click.option("--html", "file", metavar="FILE", help="Write the curves and tables as one HTML page.")
@output_option("table", "json")
@target_options
def compare(*, jobs: tuple[str, ...], folders: tuple[str, ...], file: str | None, output: str, settings: Settings) -> None:
    """Compare launches: state, speed, losses at the same steps, and the fields of their specs that differ.

    One JOB alone stands for all its launches. Of several, each stands for its newest launch, live or archived; `JOB@2` is the
    second launch, as `kfjob history JOB` counts them, and `JOB@all` stands for all. A loss in the table is the mean of the
    lines about a step. It reads all logs.
    """
    from kfjob.api.compare import compare_launches
    from kfjob.api.launches import check_count, read_launches, select_launches

    selected = select_launches(jobs, folders, settings, notify=notify)
    check_count(selected)
    _hide_secrets(selected)
    comparison = compare_launches(read_launches(selected, every_line=True))
    if file:
        _write_page(comparison, Path(file))
    if output == "json":
        print_json(_comparison_json(comparison), indent=2)
    else:
        click.echo(colour_states(_format_comparison(comparison)))
        if file:
            click.echo(f"\n{file}")


def _hide_secrets(launches: Sequence[LaunchReader]) -> None:
    hide_secrets(secret for launch in launches for secret in launch.reader.secrets)


def _write_page(comparison: Comparison, path: Path) -> None:
    try:
        path.write_text(comparison.to_html(), encoding="utf-8", errors="replace")
    except OSError as err:
        hint = "name another file with `--html`"
        raise UsageError(f"cannot write `{path}`", cause=err.strerror or str(err), hint=hint) from err


def _launch_json(launch: Launch) -> dict[str, Any]:
    """Return a launch as JSON: the fields of a job in `kfjob list`, and what only a launch has."""
    from msgspec import to_builtins

    from kfjob.cli.view_json import job_json

    return (
        {"number": launch.number}
        | job_json(launch.snapshot, launch.view)
        | {
            "resume": to_builtins(launch.resume),
            "checkpoint": to_builtins(launch.checkpoint),
            "cause": to_builtins(launch.first_cause),
            "folder": str(launch.folder) if launch.folder else None,
        }
    )


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "launches": [_launch_json(launch) for launch in comparison.launches],
        "steps": [{"step": row.step, "losses": row.losses} for row in comparison.steps],
        "spec": [{"field": row.field, "values": row.values} for row in comparison.spec],
    }


def _format_history(launches: Sequence[Launch]) -> str:
    """Return a row for each launch, with the first cause of a failed one below its row."""
    from kfjob.cli.formatting import format_table, shorten

    now, width = time.time_ns(), find_width()
    rows = [
        (str(launch.number), _format_start(launch), *_format_facts(launch, now), (launch.resume and launch.resume.name) or "-")
        for launch in launches
    ]
    header = ("#", "STARTED", "STATE", "DURATION", "STEP", "LOSS", "FROM")
    head, *lines = format_table(header, rows, width=width, flexible=("FROM",)).splitlines()
    text = [head]
    for line, launch in zip(lines, launches, strict=True):
        text.append(line)
        if cause := launch.first_cause:
            place = f" at {cause.place}" if cause.place else ""
            text.append(shorten(f"{CAUSE_INDENT}{redact(f'{cause.title}{place}')}", width or 10_000))
    return "\n".join(text)


def _format_start(launch: Launch) -> str:
    from kfjob.cli.formatting import local_minute

    return local_minute(launch.started or launch.snapshot.created)


def _format_facts(launch: Launch, now: int) -> tuple[str, str, str, str]:
    """Return state, duration, step and loss."""
    from kfjob.cli.formatting import format_span
    from kfjob.cli.view_text import short_step_text
    from kfjob.joblog.progress.training import format_loss

    loss = launch.progress.loss
    return (
        str(launch.phase),
        format_span(launch.started, launch.ended, now, is_over=launch.phase.ended),
        short_step_text(launch.view) or "-",
        "-" if loss is None else format_loss(loss),
    )


def _format_comparison(comparison: Comparison) -> str:
    """Return tables with a column for each launch: figures, losses, causes, fields of the specs that differ.

    A terminal that is too narrow for all launches shows some of them below the others.
    """
    width, names = find_width(), [launch.name for launch in comparison.launches]
    counts_in_epoch = any(launch.progress.counts_in_epoch for launch in comparison.launches)
    facts = ("", [*_list_facts(comparison)])
    losses = ("RUN STEP" if counts_in_epoch else "STEP", [*_list_losses(comparison)])
    size = next((n for n in range(len(names), 1, -1) if _fits(names, [facts, losses], n, width)), 1)
    texts = [
        _format_columns(title, names, rows, slice(start, start + size))
        for start in range(0, len(names), size)
        for title, rows in (facts, losses)
        if rows
    ]
    means = "; a loss at a step is the mean of lines about it" if losses[1] else ""
    texts.append(f"loss and speed are the newest{means}")
    causes = [launch.first_cause.title if launch.first_cause else "-" for launch in comparison.launches]
    if any(launch.first_cause for launch in comparison.launches):
        texts.append(_format_values("CAUSE", names, [("", *causes)], width))
    if comparison.spec:
        rows = [(row.field, *(value or "-" for value in row.values)) for row in comparison.spec]
        texts.append(_format_values("SPEC", names, rows, width))
    return "\n\n".join(texts)


def _format_columns(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], columns: slice) -> str:
    """Return a table of some of the launches."""
    from kfjob.cli.formatting import format_table

    return format_table((title, *names[columns]), [(row[0], *row[1:][columns]) for row in rows])


def _fits(names: Sequence[str], tables: Sequence[Table], size: int, width: int | None) -> bool:
    """Return whether tables with `size` launches beside each other are not wider than the terminal."""
    if width is None:
        return True
    parts = [
        _format_columns(title, names, rows, slice(start, start + size))
        for title, rows in tables
        for start in range(0, len(names), size)
    ]
    return all(len(line) <= width for part in parts for line in part.splitlines())


def _format_values(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Return a table of texts; a list with a line for each launch if the table is too wide, so that nothing is cut."""
    table = _format_columns(title, names, rows, slice(None))
    if all(len(line) <= (width or LIST_WIDTH) for line in table.splitlines()):
        return table
    size = max(map(len, names))
    lines = [title]
    for field, *values in rows:
        lines += [field] if field else []
        lines += [f"  {name:{size}}   {' '.join(value.split())}" for name, value in zip(names, values, strict=True)]
    return "\n".join(lines)


def _list_facts(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    from kfjob.cli.view_text import speed_text

    now, launches = time.time_ns(), comparison.launches
    states, durations, steps, losses = zip(*(_format_facts(launch, now) for launch in launches), strict=True)
    yield ("started", *map(_format_start, launches))
    yield ("state", *states)
    yield ("duration", *durations)
    yield ("step", *steps)
    yield ("loss", *losses)
    yield ("speed", *(speed_text(launch.progress) or "-" for launch in launches))


def _list_losses(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    from kfjob.joblog.progress.training import format_loss

    for row in comparison.steps:
        yield (str(row.step), *("-" if loss is None else format_loss(loss) for loss in row.losses))
