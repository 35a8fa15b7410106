"""submit, apply, render, validate: the commands that read a spec."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.build_options import Build, build, built, image_change
from kfjob.cli.options import Settings, Source, code, notify, output, print_json, read_spec, spec_or_template, strict, where
from kfjob.cli.options import spec as spec_option

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.run import Run
    from kfjob.api.specs.dry_run import DryRun
    from kfjob.compile.images import ImageChange
    from kfjob.spec.source import LoadedSpec

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
    code: CodeLayer | None,
    build: Build | None,
    settings: Settings,
) -> int:
    """Start the job that SPEC (a file, or - for standard input) or a manifest template describes."""
    from kfjob.cli import follow as following

    if dry_run:
        found = _dry_run(source, dry_run, settings, code, build)
        if output == "json":
            print_json(found.describe())
        else:
            click.echo(found.name)
        click.echo(f"`{found.name}` {found.said}; nothing was created", err=True)
        return 0
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


def _submitted(source: Source, settings: Settings, code: CodeLayer | None, build: Build | None) -> Run:
    if source.template:
        from kfjob.api.specs.template import submit_objects

        objects = _objects(source, settings, image_change(build, code, settings, dry_run=False))
        return submit_objects(objects, settings=settings, notify=notify)
    from kfjob.api.run import submit_loaded

    return submit_loaded(_loaded(source, build, code, settings), settings=settings, code=code, notify=notify)


def _dry_run(source: Source, how: Any, settings: Settings, code: CodeLayer | None, build: Build | None) -> DryRun:
    from kfjob.api.specs import dry_run

    if source.template:
        objects = _objects(source, settings, image_change(build, code, settings, dry_run=True))
        return dry_run.of_objects(objects, how, settings=settings, notify=notify)
    loaded = _loaded(source, build, code, settings, dry_run=True)
    return dry_run.of_loaded(loaded, how, settings=settings, notify=notify, code=code)


def _loaded(
    source: Source, build: Build | None, code: CodeLayer | None, settings: Settings, *, dry_run: bool = False
) -> LoadedSpec:
    """The spec, with the image of `--build` if that was said."""
    loaded = read_spec(source)
    if not build:
        return loaded
    image = built(loaded.spec.image, build, settings, dry_run=dry_run, code=code)
    return replace(loaded, spec=loaded.spec.model_copy(update={"image": image}))


def _objects(source: Source, settings: Settings, image: ImageChange | None = None) -> tuple[dict[str, Any], ...]:
    from kfjob.api.specs.template import render_template

    return render_template(
        source.text(),
        file=source.name,
        values=source.values(),
        keep=source.keep,
        settings=settings,
        notify=notify,
        image=image,
    )


@click.command()
@spec_option
@where
@strict
def apply(*, source: Source, settings: Settings) -> None:
    """Change the live job to what SPEC says, where that is possible in place."""
    from kfjob.api.run import apply_loaded

    run = apply_loaded(read_spec(source), settings=settings, notify=notify)
    click.echo(run.name)


@click.command()
@spec_or_template
@output("yaml", "json")
@where
@strict
def render(*, source: Source, output: str, settings: Settings) -> None:
    """Print the objects that submit would create, byte for byte (with a launch id of their own)."""
    if source.template:
        from kfjob.api.specs.render import as_text

        sys.stdout.write(as_text(_objects(source, settings), output))
        return
    from kfjob.api.specs.render import render as make

    sys.stdout.write(make(read_spec(source), settings=settings, form=output, notify=notify))


@click.command()
@spec_option
@where
@strict
def validate(*, source: Source, settings: Settings) -> None:
    """Check SPEC and name every problem with its file, line and column."""
    from kfjob.api.specs.render import plan_of

    plan = plan_of(read_spec(source), settings=settings, notify=notify)
    said = f"{plan.nodes} nodes, {plan.processes_per_node} processes each, rendezvous {plan.rendezvous.backend}"
    click.echo(f"`{source.spec}` is valid: {said}", err=True)
