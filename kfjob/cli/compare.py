"""The command `compare`: launches side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.completion import FILE, JOB
from kfjob.cli.history import format_facts, format_start, hide_launch_secrets, launch_json
from kfjob.cli.options import Settings, notify, output_option, target_options
from kfjob.cli.output import colour_states, find_width, print_json, write_page

if TYPE_CHECKING:
    from kfjob.api.compare import Comparison

LIST_WIDTH = 80
"""Columns of a table of texts in a file or a pipe; a wider one becomes a list."""
Table = tuple[str, Sequence[Sequence[str]]]
"""The title of the first column, and the rows."""


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
    hide_launch_secrets(selected)
    comparison = compare_launches(read_launches(selected, every_line=True))
    if file:
        write_page(Path(file), comparison.to_html(), option="--html")
    if output == "json":
        print_json(_comparison_json(comparison), indent=2)
    else:
        click.echo(colour_states(_format_comparison(comparison)))
        if file:
            click.echo(f"\n{file}")


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "launches": [launch_json(launch) for launch in comparison.launches],
        "steps": [{"step": row.step, "losses": row.losses} for row in comparison.steps],
        "spec": [{"field": row.field, "values": row.values} for row in comparison.spec],
    }


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
    from kfjob.joblog.view.progress_text import speed_text

    now, launches = time.time_ns(), comparison.launches
    states, durations, steps, losses = zip(
        *(format_facts(launch, launch.snapshot.observed or now) for launch in launches), strict=True
    )
    yield ("started", *map(format_start, launches))
    yield ("state", *states)
    yield ("duration", *durations)
    yield ("step", *steps)
    yield ("loss", *losses)
    yield ("speed", *(speed_text(launch.progress) or "-" for launch in launches))


def _list_losses(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    from kfjob.joblog.progress.training import format_loss

    for row in comparison.steps:
        yield (str(row.step), *("-" if loss is None else format_loss(loss) for loss in row.losses))
