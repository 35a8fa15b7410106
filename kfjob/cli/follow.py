"""watch, wait, and the live view of `submit --follow`."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, notify, output, where

if TYPE_CHECKING:
    from kfjob.api.run import Run
    from kfjob.events import JobPhase

DETACHED = 130


@click.command()
@click.argument("job")
@output("auto", "plain", "json")
@where
def watch(*, job: str, output: str, settings: Settings) -> int:
    """Follow a job: progress, pods, and what happens to it. Ctrl-C detaches, the job goes on."""
    from kfjob.api.attach import attach

    return follow(attach(job, settings=settings, notify=notify), output)


@click.command()
@click.argument("job")
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long (exit code 124).")
@where
def wait(*, job: str, timeout: float | None, settings: Settings) -> int:
    """Wait until a job has ended; the exit code tells how: 0 succeeded, 100 failed, 103 stopped, 124 not yet.

    Why a job has failed is said on stderr.
    """
    from kfjob.api.attach import attach

    run = attach(job, settings=settings, notify=notify)
    phase = run.wait(timeout=timeout)
    click.echo(phase)
    if phase == "Failed":
        _explain(run)
    return exit_code(phase)


def _explain(run: Run) -> None:
    """What went wrong, on stderr."""
    from kfjob.api.diagnose import examine
    from kfjob.cli.diagnose import first_cause
    from kfjob.errors import KfjobError

    with suppress(KfjobError):  # how it ended is the answer, this only helps
        click.echo("\n".join(first_cause(examine(run).diagnosis)), err=True)


def exit_code(phase: JobPhase | None) -> int:
    """What a job's end means for a script."""
    from kfjob.errors import JobFailed, JobStopped, JobUnfinished
    from kfjob.events import JobPhase

    ends = {JobPhase.SUCCEEDED: 0, JobPhase.FAILED: JobFailed.exit_code, JobPhase.STOPPED: JobStopped.exit_code}
    return ends.get(phase, JobUnfinished.exit_code) if phase else JobUnfinished.exit_code


def follow(run: Run, form: str) -> int:
    """Show what happens until the job has ended; the exit code. Ctrl-C detaches."""
    if run.kept:
        click.echo(f"`{run.name}` has ended; `kfjob status {run.name}` shows it", err=True)
        return exit_code(run.snapshot().job.phase)
    from kfjob.cli.display import JsonDisplay, LiveDisplay, PlainDisplay

    kinds = {"json": JsonDisplay, "plain": PlainDisplay}
    display = kinds.get(form, LiveDisplay if sys.stderr.isatty() else PlainDisplay)(run)
    view = None
    try:
        with display:
            for view, event in run.follow():
                display.update(view, event, time.monotonic())
    except KeyboardInterrupt:
        further = f"`kfjob watch {run.name}` follows it, `kfjob stop {run.name}` ends it"
        click.echo(f"\ndetached: `{run.name}` goes on; {further}", err=True)
        return DETACHED
    if view is None:
        return exit_code(None)
    display.summary(view)
    return exit_code(view.phase)
