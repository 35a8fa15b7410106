"""The command `history`: the launches of a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.text import plural
from kfjob.cli.completion import JOB
from kfjob.cli.options import Settings, notify, output_option, target_options
from kfjob.cli.output import colour_states, find_width, hide_secrets, print_json, redact
from kfjob.cli.parameter_types import POSITIVE

if TYPE_CHECKING:
    from kfjob.api.launches import Launch, LaunchReader

CAUSE_INDENT = "     "


@click.command()
@click.argument("job", type=JOB)
@click.option("--last", default=20, show_default=True, type=POSITIVE, metavar="N", help="Number of newest launches to show.")
@output_option("table", "json")
@target_options
def history(*, job: str, last: int, output: str, settings: Settings) -> None:
    """Show the launches of a job: the live one, and those in the archive on this machine.

    A failed launch shows its first cause below, and one that a limit or the guard has stopped shows why. FROM is the checkpoint
    that it resumed from, as kfjob's trainer reports it.
    """
    from kfjob.api.launches import find_launches, read_launches

    found = find_launches(job, settings, notify=notify)
    if len(found) > last:
        notify(f"{plural(len(found) - last, 'older launch', 'older launches')} not shown: `--last {len(found)}` shows all")
    hide_launch_secrets(found[-last:])
    launches = read_launches(found[-last:])
    if output == "json":
        print_json([launch_json(launch) for launch in launches], indent=2)
    else:
        click.echo(colour_states(_format_history(launches)))


def hide_launch_secrets(launches: Sequence[LaunchReader]) -> None:
    """Hide the secrets of launches in all output."""
    hide_secrets(secret for launch in launches for secret in launch.reader.secrets)


def launch_json(launch: Launch) -> dict[str, Any]:
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


def _format_history(launches: Sequence[Launch]) -> str:
    """Return a row for each launch, with the first cause of a failed one below its row."""
    from kfjob.cli.formatting import format_table, shorten

    now, width = time.time_ns(), find_width()
    rows = [
        (str(launch.number), format_start(launch), *format_facts(launch, now), (launch.resume and launch.resume.name) or "-")
        for launch in launches
    ]
    header = ("#", "STARTED", "STATE", "DURATION", "STEP", "LOSS", "FROM")
    head, *lines = format_table(header, rows, width=width, flexible=("FROM",)).splitlines()
    text = [head]
    for line, launch in zip(lines, launches, strict=True):
        text.append(line)
        cause = launch.first_cause
        reason = f"{cause.title}{f' at {cause.place}' if cause.place else ''}" if cause else launch.stop_reason
        if reason:
            text.append(shorten(f"{CAUSE_INDENT}{redact(reason)}", width or 10_000))
    return "\n".join(text)


def format_start(launch: Launch) -> str:
    """Return the time when a launch started, or was created."""
    from kfjob.cli.formatting import local_minute

    return local_minute(launch.started or launch.snapshot.created)


def format_facts(launch: Launch, now: int) -> tuple[str, str, str, str]:
    """Return state, duration, step and loss."""
    from kfjob.cli.formatting import format_span
    from kfjob.joblog.progress.training import format_loss
    from kfjob.joblog.view.progress_text import short_step_text

    loss = launch.progress.loss
    return (
        str(launch.phase),
        format_span(launch.started, launch.ended, now, is_over=launch.phase.ended),
        short_step_text(launch.view) or "-",
        "-" if loss is None else format_loss(loss),
    )
