"""submit, apply, render, validate: the commands that read a spec."""

from __future__ import annotations

import sys

import click

from kfjob.cli.options import Settings, notice, output, read_spec, where
from kfjob.cli.options import spec as spec_option


@click.command()
@spec_option
@click.option("-f", "--follow", is_flag=True, help="Stay and show the progress. Ctrl-C detaches, the job goes on.")
@output("name", "json")
@where
def submit(*, spec: str, assignments: tuple[str, ...], follow: bool, output: str, settings: Settings) -> int:
    """Start the job that SPEC (a file, or - for standard input) describes."""
    from kfjob.api.run import submit_loaded
    from kfjob.cli import follow as following

    run = submit_loaded(read_spec(spec, assignments), settings=settings, notice=notice)
    if output == "json":
        following.print_json(run.describe())
    else:
        click.echo(run.name)
    if not follow:
        click.echo(f"submitted `{run.name}` (launch {run.launch}); `kfjob watch {run.name}` follows it", err=True)
        return 0
    return following.follow(run, "json" if output == "json" else "auto")


@click.command()
@spec_option
@where
def apply(*, spec: str, assignments: tuple[str, ...], settings: Settings) -> None:
    """Change the live job to what SPEC says, where that is possible in place."""
    from kfjob.api.run import apply_loaded

    run = apply_loaded(read_spec(spec, assignments), settings=settings, notice=notice)
    click.echo(run.name)


@click.command()
@spec_option
@output("yaml", "json")
@where
def render(*, spec: str, assignments: tuple[str, ...], output: str, settings: Settings) -> None:
    """Print the objects that submit would create, byte for byte (with a launch id of their own)."""
    from kfjob.api.render import render as make

    sys.stdout.write(make(read_spec(spec, assignments), settings=settings, form=output))


@click.command()
@spec_option
@where
def validate(*, spec: str, assignments: tuple[str, ...], settings: Settings) -> None:
    """Check SPEC and name every problem with its file, line and column."""
    from kfjob.api.render import plan_of

    plan = plan_of(read_spec(spec, assignments), settings=settings, notice=notice)
    said = f"{plan.nodes} nodes, {plan.processes_per_node} processes each, rendezvous {plan.rendezvous.backend}"
    click.echo(f"`{spec}` is valid: {said}", err=True)
