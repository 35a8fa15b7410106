"""The commands `suspend`, `resume` and `scale`, which change a live job in place."""

from __future__ import annotations

import click

from kfjob.cli.completion import LIVE_JOB
from kfjob.cli.lifecycle import timeout_option
from kfjob.cli.options import Settings, target_options
from kfjob.cli.parameter_types import POSITIVE


@click.command()
@click.argument("job", type=LIVE_JOB)
@timeout_option
@target_options
def suspend(*, job: str, timeout: float, settings: Settings) -> None:
    """Remove a job's pods until `kfjob resume`. The job keeps its name and its launch.

    The logs of the pods are archived first. The pods get the time to save a checkpoint that a stop gives them.
    """
    from kfjob.api.lifecycle.control import suspend as suspend_job
    from kfjob.api.target import find_target

    suspend_job(find_target(settings), job, timeout=timeout)
    click.echo(job)
    click.echo(f"suspended `{job}`; `kfjob resume {job}` creates its pods again", err=True)


@click.command()
@click.argument("job", type=LIVE_JOB)
@target_options
def resume(*, job: str, settings: Settings) -> None:
    """Create the pods of a suspended job again. A training with checkpoints goes on from the newest one."""
    from kfjob.api.lifecycle.control import resume as resume_job
    from kfjob.api.target import find_target

    resume_job(find_target(settings), job)
    click.echo(job)
    click.echo(f"resumed `{job}`; `kfjob watch {job}` follows it", err=True)


@click.command()
@click.argument("job", type=LIVE_JOB)
@click.argument("nodes", type=POSITIVE)
@target_options
def scale(*, job: str, nodes: int, settings: Settings) -> None:
    """Change the number of nodes of an elastic job while it runs: `kfjob scale train 4` gives it four nodes.

    torchrun then starts the training processes again, with the new number of ranks.
    """
    from kfjob.api.lifecycle.control import scale as scale_job
    from kfjob.api.target import find_target

    scale_job(find_target(settings), job, nodes)
    click.echo(job)
    click.echo(f"`{job}` has {nodes} node{'s' * (nodes != 1)} now; `kfjob status {job}` shows its pods", err=True)
