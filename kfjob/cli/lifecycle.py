"""stop and relaunch: the commands that end a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, code, notify, where

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer


@click.command()
@click.argument("job")
@click.option("--timeout", default=300.0, show_default=True, metavar="SECONDS", help="How long its pods may take to go.")
@click.option("--no-archive", is_flag=True, help="Do not fetch the logs first.")
@where
def stop(*, job: str, timeout: float, no_archive: bool, settings: Settings) -> None:
    """End a job and free its name; one that has ended is removed too. Its logs are archived first."""
    from kfjob.api.lifecycle.stop import stop as end
    from kfjob.api.target import find_job_target

    kept = end(find_job_target(job, settings, notify=notify), job, timeout=timeout, archive_logs=not no_archive)
    click.echo(job)
    click.echo(f"stopped `{job}`" + (f", its logs are in {kept}" if kept else ""), err=True)


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Stay and show the progress.")
@click.option("--timeout", default=300.0, show_default=True, metavar="SECONDS", help="How long its pods may take to go.")
@where
@code
def relaunch(*, job: str, follow: bool, timeout: float, code: CodeLayer | None, settings: Settings) -> int:
    """Stop a job and submit what is recorded of it again, with a new launch id and the same checkpoint folder."""
    from kfjob.api.lifecycle.relaunch import relaunch as again
    from kfjob.api.run import Run
    from kfjob.api.target import find_job_target
    from kfjob.cli import follow as following

    target = find_job_target(job, settings, notify=notify)
    run = Run(target, *again(target, job, timeout=timeout, code=code, notify=notify))
    click.echo(run.name)
    click.echo(f"relaunched `{run.name}` (launch {run.launch})", err=True)
    return following.follow(run, "auto") if follow else 0
