"""submit, apply, render, validate: the commands that read a spec."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.build_option import Build, build, built
from kfjob.cli.options import Settings, Source, code, notice, output, print_json, read_spec, spec_or_template, strict, where
from kfjob.cli.options import spec as spec_option
from kfjob.errors import UsageError

if TYPE_CHECKING:
    from kfjob.api.code import Code
    from kfjob.api.run import Run

DRY_RUN_HELP = "Create nothing: check here (client), or by the API server with its webhooks and quotas (server)."


@click.command()
@spec_or_template
@click.option("-f", "--follow", is_flag=True, help="Stay and show the progress. Ctrl-C detaches, the job goes on.")
@click.option("--dry-run", type=click.Choice(["client", "server"]), help=DRY_RUN_HELP)
@output("name", "json")
@where
@strict
@code
@build
def submit(
    *,
    source: Source,
    follow: bool,
    dry_run: str | None,
    output: str,
    code: Code | None,
    build: Build | None,
    settings: Settings,
) -> int:
    """Start the job that SPEC (a file, or - for standard input) or a manifest template describes."""
    from kfjob.cli import follow as following

    if (code or build) and (dry_run or source.template):
        other, ours = "--dry-run" if dry_run else "--template", "--code" if code else "--build"
        raise UsageError(f"`{ours}` and `{other}` do not go together", hint="`kfjob push-image` pushes and submits nothing")
    if dry_run:
        return _dry_run(source, dry_run, output, settings)
    run = _submitted(source, settings, code, build)
    if output == "json":
        print_json(run.describe())
    else:
        click.echo(run.name)
    if not follow:
        launch = f" (launch {run.launch})" if run.launch else ""
        click.echo(f"submitted `{run.name}`{launch}; `kfjob watch {run.name}` follows it", err=True)
        return 0
    return following.follow(run, "json" if output == "json" else "auto")


def _submitted(source: Source, settings: Settings, code: Code | None, build: Build | None) -> Run:
    if source.template:
        from kfjob.api.template import submit_objects

        return submit_objects(_objects(source, settings), settings=settings, notice=notice)
    from kfjob.api.run import submit_loaded

    loaded = read_spec(source)
    if build:
        loaded = built(loaded, build, settings)
    return submit_loaded(loaded, settings=settings, code=code, notice=notice)


def _dry_run(source: Source, how: Any, output: str, settings: Settings) -> int:
    from kfjob.api import dry_run

    if source.template:
        objects = _objects(source, settings)
        found = dry_run.of_objects(objects, how, settings=settings, notice=notice)
    else:
        found = dry_run.of_loaded(read_spec(source), how, settings=settings, notice=notice)
    if output == "json":
        print_json(found.describe())
    else:
        click.echo(found.name)
    click.echo(f"`{found.name}` {found.said}; nothing was created", err=True)
    return 0


def _objects(source: Source, settings: Settings) -> tuple[dict[str, Any], ...]:
    from kfjob.api.template import render_template

    values, text = source.values(), source.text()
    return render_template(text, file=source.name, values=values, keep=source.keep, settings=settings, notice=notice)


@click.command()
@spec_option
@where
@strict
def apply(*, source: Source, settings: Settings) -> None:
    """Change the live job to what SPEC says, where that is possible in place."""
    from kfjob.api.run import apply_loaded

    run = apply_loaded(read_spec(source), settings=settings, notice=notice)
    click.echo(run.name)


@click.command()
@spec_or_template
@output("yaml", "json")
@where
@strict
def render(*, source: Source, output: str, settings: Settings) -> None:
    """Print the objects that submit would create, byte for byte (with a launch id of their own)."""
    if source.template:
        from kfjob.api.render import as_text

        sys.stdout.write(as_text(_objects(source, settings), output))
        return
    from kfjob.api.render import render as make

    sys.stdout.write(make(read_spec(source), settings=settings, form=output, notice=notice))


@click.command()
@spec_option
@where
@strict
def validate(*, source: Source, settings: Settings) -> None:
    """Check SPEC and name every problem with its file, line and column."""
    from kfjob.api.render import plan_of

    plan = plan_of(read_spec(source), settings=settings, notice=notice)
    said = f"{plan.nodes} nodes, {plan.processes_per_node} processes each, rendezvous {plan.rendezvous.backend}"
    click.echo(f"`{source.spec}` is valid: {said}", err=True)
