"""The commands `stop` and `relaunch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfjob.api.settings import STOP_TIMEOUT
from kfjob.base.errors import KfjobError
from kfjob.cli.completion import JOB, LIVE_JOB
from kfjob.cli.options import Settings, code_options, combine, notify, python_option, quiet_option, target_options
from kfjob.cli.output import colour_marks
from kfjob.cli.parameter_types import DURATION
from kfjob.cli.spec_options import ChangeOptions, change_options

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer

_TIMEOUT_HELP = "How long to wait until the job's pods are gone."
timeout_option = combine(
    click.option("--timeout", type=DURATION, default=STOP_TIMEOUT, show_default=True, metavar="SECONDS", help=_TIMEOUT_HELP)
)


@click.command()
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", type=LIVE_JOB)
@timeout_option
@click.option("--no-archive", is_flag=True, help="Do not archive the logs.")
@target_options
def stop(*, jobs: tuple[str, ...], timeout: float, no_archive: bool, settings: Settings) -> int:
    """Stop jobs and remove them, so that their names are free. Their logs are archived first.

    A job that has ended is removed too. After an error the other jobs are still stopped; the exit code is that of the first
    error.
    """
    code = 0
    for job in dict.fromkeys(jobs):
        try:
            _stop_job(job, timeout=timeout, archive_logs=not no_archive, settings=settings)
        except KfjobError as err:
            if len(jobs) == 1:
                raise
            click.echo(colour_marks(str(err)), err=True)
            code = code or err.exit_code
    return code


def _stop_job(job: str, *, timeout: float, archive_logs: bool, settings: Settings) -> None:
    from kfjob.api.lifecycle.stop import stop as stop_job
    from kfjob.api.target import find_job_target

    archive = stop_job(find_job_target(job, settings, notify=notify), job, timeout=timeout, archive_logs=archive_logs)
    click.echo(job)
    click.echo(f"stopped `{job}`" + (f"; its logs are in {archive}" if archive else ""), err=True)


@click.command()
@click.argument("job", type=JOB)
@click.option("-f", "--follow", "should_follow", is_flag=True, help="Follow the job after the submit.")
@quiet_option
@timeout_option
@change_options
@target_options
@python_option
@code_options
def relaunch(
    *,
    job: str,
    should_follow: bool,
    quiet: bool,
    timeout: float,
    change: ChangeOptions,
    code: CodeLayer | None,
    settings: Settings,
) -> int:
    """Stop a job and submit its recorded spec again.

    The new launch has its own launch id and uses the same checkpoint directory. `--set` and `--spec` change the spec: every
    difference to the last launch is printed, and nothing is stopped if the new spec has a problem. For example,
    `--set train.max_steps=2000` trains on.
    """
    from kfjob.api.lifecycle.relaunch import relaunch as relaunch_job
    from kfjob.api.target import find_job_target
    from kfjob.cli.follow import follow

    target = find_job_target(job, settings, notify=notify)
    reader = relaunch_job(target, job, timeout=timeout, code=code, change=change.read(), notify=notify)
    if not should_follow:  # else standard output is that of the program
        click.echo(reader.ref.name)
    click.echo(f"relaunched `{reader.ref.name}` (launch {reader.ref.launch})", err=True)
    return follow(reader, "auto", quiet=quiet) if should_follow else 0
