"""The commands `watch` and `wait`, and the live view of `submit --follow`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kfjob.cli.exit_codes import INTERRUPTED, job_exit_code
from kfjob.cli.options import Settings, notify, output_option, target_options

if TYPE_CHECKING:
    from kfjob.api.run import Run


@click.command()
@click.argument("job")
@output_option("auto", "plain", "json")
@target_options
def watch(*, job: str, output: str, settings: Settings) -> int:
    """Follow a job until it ends: progress, pods and events.

    `-o auto` shows a live panel in a terminal and plain lines elsewhere. Ctrl-C detaches; the job goes on.
    """
    from kfjob.api.attach import attach

    return follow(attach(job, settings=settings, notify=notify), output)


@click.command()
@click.argument("job")
@click.option("--timeout", type=float, metavar="SECONDS", help="Stop waiting after this time (exit code 124).")
@target_options
def wait(*, job: str, timeout: float | None, settings: Settings) -> int:
    """Wait until a job ends, and print its final state.

    Exit codes: 0 succeeded, 100 failed, 103 stopped, 124 timed out. The cause of a failure is printed to stderr.
    """
    from kfjob.api.attach import attach

    run = attach(job, settings=settings, notify=notify)
    phase = run.wait(timeout=timeout)
    click.echo(phase)
    if phase == "Failed":
        _print_cause(run)
    return job_exit_code(phase)


def _print_cause(run: Run) -> None:
    from kfjob.api.diagnose import examine
    from kfjob.cli.diagnose import first_cause
    from kfjob.errors import KfjobError

    with suppress(KfjobError):  # the exit code is the answer; the cause is extra
        click.echo("\n".join(first_cause(examine(run).diagnosis)), err=True)


def follow(run: Run, output: str) -> int:
    """Show a job's events until it ends, and return the exit code. Ctrl-C detaches."""
    if run.kept:
        click.echo(f"`{run.name}` has ended; `kfjob status {run.name}` shows its state", err=True)
        return job_exit_code(run.snapshot().job.phase)
    from kfjob.cli.display import JsonDisplay, LiveDisplay, PlainDisplay

    kinds = {"json": JsonDisplay, "plain": PlainDisplay}
    display = kinds.get(output, LiveDisplay if sys.stderr.isatty() else PlainDisplay)(run)
    view = None
    try:
        with display:
            for view, event in run.follow():
                display.update(view, event, time.monotonic())
    except KeyboardInterrupt:
        next_commands = f"`kfjob watch {run.name}` follows it again, `kfjob stop {run.name}` stops it"
        click.echo(f"\ndetached from `{run.name}`, which goes on; {next_commands}", err=True)
        return INTERRUPTED
    if view is None:
        return job_exit_code(None)
    display.summary(view)
    return job_exit_code(view.phase)
