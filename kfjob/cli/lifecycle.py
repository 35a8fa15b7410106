"""The commands `stop` and `relaunch`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kfjob.api.settings import STOP_TIMEOUT
from kfjob.base.errors import KfjobError, UsageError
from kfjob.base.text import join_names
from kfjob.cli.completion import JOB, LIVE_JOB
from kfjob.cli.options import Settings, code_options, combine, notify, python_option, quiet_option, target_options
from kfjob.cli.output import colour_marks, hide_secrets
from kfjob.cli.parameter_types import DURATION
from kfjob.cli.spec_options import ChangeOptions, change_options

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer

_TIMEOUT_HELP = "How long to wait until the job's pods are gone."
timeout_option = combine(
    click.option("--timeout", type=DURATION, default=STOP_TIMEOUT, show_default=True, metavar="SECONDS", help=_TIMEOUT_HELP)
)

_START_HELP = "Begin a new run from the `latest` checkpoint, the one of this step, or from `none`. Default: continue the run."


@click.command()
@click.argument("jobs", nargs=-1, metavar="[JOB...]", type=LIVE_JOB)
@click.option("--all", "stops_all", is_flag=True, help="Stop all jobs of the namespace, or of this machine.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --all.")
@timeout_option
@click.option("--no-archive", is_flag=True, help="Do not archive the logs.")
@click.option("--force", is_flag=True, help="Remove pods of lost nodes, whose processes may still run there.")
@target_options
def stop(
    *,
    jobs: tuple[str, ...],
    stops_all: bool,
    yes: bool,
    timeout: float,
    no_archive: bool,
    force: bool,
    settings: Settings,
) -> int:
    """Stop jobs and remove them, so that their names are free. Their logs are archived first.

    A job that has ended is removed too. After an error the other jobs are still stopped; the exit code is that of the first
    error.
    """
    if stops_all == bool(jobs):
        raise UsageError("name the jobs, or use `--all`", hint="`kfjob list` shows the jobs")
    names = _list_all(settings, yes=yes) if stops_all else tuple(dict.fromkeys(jobs))
    code = 0
    for job in names:
        try:
            _stop_job(job, timeout=timeout, archive_logs=not no_archive, force=force, settings=settings)
        except KfjobError as err:
            if len(names) == 1:
                raise
            click.echo(colour_marks(str(err)), err=True)
            code = code or err.exit_code
    return code


def _list_all(settings: Settings, *, yes: bool) -> tuple[str, ...]:
    """Return the names of all jobs of the target, after the user has agreed to stop them."""
    from kfjob.api.target import find_target

    target = find_target(settings, notify=notify)
    names = tuple(job.name for job in target.backend.list(namespace=target.namespace))
    where = f"namespace `{target.namespace}`" if target.capabilities.has_api_server else "this machine"
    if not names:
        click.echo(f"no jobs in {where}" if target.capabilities.has_api_server else "no jobs on this machine", err=True)
    elif not yes:
        question = f"stop {join_names(f'`{name}`' for name in names)} of {where}?"
        if not sys.stdin.isatty():
            raise UsageError(f"`--all` without a terminal needs `--yes`: {question}")
        click.confirm(question, abort=True, err=True)
    return names


def _stop_job(job: str, *, timeout: float, archive_logs: bool, force: bool, settings: Settings) -> None:
    from kfjob.api.lifecycle.stop import stop as stop_job
    from kfjob.api.target import find_target

    archive = stop_job(find_target(settings), job, timeout=timeout, archive_logs=archive_logs, force=force)
    click.echo(job)
    click.echo(f"stopped `{job}`" + (f"; its logs are in {archive}" if archive else ""), err=True)


@click.command()
@click.argument("job", type=JOB)
@click.option("-f", "--follow", "should_follow", is_flag=True, help="Follow the job after the submit.")
@quiet_option
@timeout_option
@click.option("--from", "start", metavar="START", help=_START_HELP)
@click.option(
    "--avoid-node", "avoid", multiple=True, metavar="NAME", help="Do not use this node in the new launch. Repeatable."
)
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
    start: str | None,
    avoid: tuple[str, ...],
    change: ChangeOptions,
    code: CodeLayer | None,
    settings: Settings,
) -> int:
    """Stop a job and submit its recorded spec again.

    The new launch has its own launch id and uses the same checkpoint directory. `--set` and `--spec` change the spec: every
    difference to the last launch is printed, and nothing is stopped if the new spec has a problem. For example,
    `--set train.max_steps=2000` trains on.

    The training goes on from its newest checkpoint. `--from 400` goes back to the checkpoint of step 400, and `--from none` to
    step 0: later checkpoints are renamed to `earlier-…`.
    """
    from kfjob.api.lifecycle.relaunch import relaunch as relaunch_job
    from kfjob.api.target import find_target
    from kfjob.cli.follow import follow

    target = find_target(settings)
    changes = change.read(start or "")
    reader = relaunch_job(target, job, timeout=timeout, code=code, change=changes, avoid=avoid, notify=notify)
    hide_secrets(reader.secrets)
    if not should_follow:  # else standard output is that of the program
        click.echo(reader.ref.name)
    click.echo(f"relaunched `{reader.ref.name}` (launch {reader.ref.launch})", err=True)
    return follow(reader, "auto", quiet=quiet) if should_follow else 0
