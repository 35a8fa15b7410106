"""The commands `submit`, `apply`, `render` and `validate`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import KfjobError, Problem, SpecError
from kfjob.cli.build_options import build_image, build_options, image_change
from kfjob.cli.error_output import describe_problem
from kfjob.cli.image_options import ImageOptions
from kfjob.cli.options import (
    Settings,
    code_options,
    notify,
    output_option,
    python_option,
    quiet_option,
    strict_option,
    target_options,
)
from kfjob.cli.output import print_json, write_data
from kfjob.cli.spec_source import Source, read_spec, spec_or_template
from kfjob.cli.template_source import plan_source, read_job_template

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.lifecycle.submit import Submission
    from kfjob.api.planning import Planned
    from kfjob.api.specs.dry_run import DryRun
    from kfjob.api.specs.template import PlannedTemplate
    from kfjob.base.common_types import JsonObject
    from kfjob.kinds.images import ImageChange
    from kfjob.source.spec_text import LoadedSpec

_DRY_RUN_HELP = "Create nothing. `client` checks the spec here; `server` sends it to the API server as a dry run."


@click.command()
@spec_or_template
@click.option("-f", "--follow", "should_follow", is_flag=True, help="Follow the job after the submit. Ctrl-C detaches.")
@quiet_option
@click.option("--dry-run", type=click.Choice(["client", "server"]), help=_DRY_RUN_HELP)
@output_option("name", "json")
@target_options
@python_option
@strict_option
@code_options
@build_options
def submit(
    *,
    source: Source,
    should_follow: bool,
    quiet: bool,
    dry_run: str | None,
    output: str,
    code: CodeLayer | None,
    build: ImageOptions | None,
    settings: Settings,
) -> int:
    """Submit a job.

    SPEC is a job spec: a file, or `-` for standard input. With --template, a manifest template takes its place.

    Your job of this name that has ended goes to the archive first. If it runs with the same spec, nothing is started.
    """
    from kfjob.api.reader import describe_ref
    from kfjob.cli.follow import follow

    if dry_run:
        checked = _dry_run(source, dry_run, settings, code, build)
        if output == "json":
            print_json(checked.describe())
        else:
            click.echo(checked.name)
        click.echo(f"`{checked.name}` {checked.result}; nothing was created", err=True)
        return 0
    reader, is_new = _submit(source, settings, code, build)
    launch = f" (launch {reader.ref.launch})" if reader.ref.launch else ""
    submitted = f"{'submitted' if is_new else 'found'} `{reader.ref.name}`{launch}"
    if output == "json":
        print_json(describe_ref(reader.ref))
    elif should_follow:  # standard output is that of the program
        click.echo(submitted, err=True)
    else:
        click.echo(reader.ref.name)
    if not should_follow:
        click.echo(f"{submitted}; `kfjob watch {reader.ref.name}` follows it", err=True)
        return 0
    return follow(reader, "json" if output == "json" else "auto", quiet=quiet)


def _submit(source: Source, settings: Settings, code: CodeLayer | None, build: ImageOptions | None) -> Submission:
    from kfjob.api.lifecycle.submit import Submission, submit_loaded

    if source.templates:
        from kfjob.api.specs.template_job import check_template_target, submit_objects

        check_template_target(settings)
        objects = _compile_template(source, settings, image_change(build, code, settings, dry_run=False))
        return Submission(submit_objects(objects, settings=settings, notify=notify), is_new=True)
    from kfjob.api.target import find_target

    loaded = _read_spec(source, build, code, settings)
    return submit_loaded(loaded, find_target(settings, notify=notify), code=code, notify=notify)


def _dry_run(source: Source, mode: Any, settings: Settings, code: CodeLayer | None, build: ImageOptions | None) -> DryRun:
    from kfjob.api.specs import dry_run

    if source.templates:
        from kfjob.api.specs.template_job import dry_run_objects

        objects = _compile_template(source, settings, image_change(build, code, settings, dry_run=True))
        return dry_run_objects(objects, mode, settings=settings, notify=notify)
    loaded = _read_spec(source, build, code, settings, dry_run=True)
    return dry_run.dry_run_spec(loaded, mode, settings=settings, notify=notify, code=code)


def _read_spec(
    source: Source, build: ImageOptions | None, code: CodeLayer | None, settings: Settings, *, dry_run: bool = False
) -> LoadedSpec:
    """Return the spec; with `--build`, build its image and set it."""
    loaded = read_spec(source, settings)
    if not build:
        return loaded
    image = build_image(loaded.spec.image, build, settings, dry_run=dry_run, code=code)
    return replace(loaded, spec=loaded.spec.model_copy(update={"image": image}))


def _compile_template(source: Source, settings: Settings, image: ImageChange | None) -> tuple[JsonObject, ...]:
    """Return the objects of a template's job."""
    planned = plan_source(source, settings)
    planned.check_findings(notify)
    return planned.compile(image)


@click.command()
@spec_or_template
@target_options
@strict_option
def apply(*, source: Source, settings: Settings) -> None:
    """Change the live job to match SPEC, if the change is possible in place.

    `kfjob diff` shows which changes are. With --template, the job's other objects change too.
    """
    if source.templates:
        from kfjob.api.specs.template_job import apply_template

        reader = apply_template(read_job_template(source, settings), settings, notify=notify)
        click.echo(reader.ref.name)
        click.echo(f"applied `{source.name}` to `{reader.ref.name}`", err=True)
        return
    from kfjob.api.lifecycle.submit import apply_loaded
    from kfjob.api.target import find_target

    reader = apply_loaded(read_spec(source, settings), find_target(settings, notify=notify), notify=notify)
    click.echo(reader.ref.name)
    click.echo(f"applied `{source.name}` to `{reader.ref.name}`", err=True)


@click.command()
@spec_or_template
@output_option("yaml", "json")
@target_options
@strict_option
def render(*, source: Source, output: str, settings: Settings) -> None:
    """Print the manifests that `kfjob submit` would create.

    They are the same byte for byte, except for the launch id. Templates without a PyTorchJob are printed with their values:
    `kfjob render --template FILE --env | kubectl apply -f -`.
    """
    if source.templates:
        from kfjob.api.specs.render import format_manifests
        from kfjob.api.specs.template import render_template

        write_data(format_manifests(render_template(source.read_template(), settings, notify=notify), output))
        return
    from kfjob.api.specs.render import render as render_spec

    settings = replace(settings, backend="kubernetes")
    write_data(render_spec(read_spec(source, settings), settings=settings, form=output, notify=notify))


@click.command()
@spec_or_template
@output_option("text", "json")
@target_options
@python_option
@strict_option
def validate(*, source: Source, output: str, settings: Settings) -> int:
    """Check SPEC, and report every problem with its file, line and column.

    The checks depend on the backend; `--backend` selects it, and the output names it.

    With `-o json`, standard output is one object: `file`, `valid`, `backend`, `backend_reason`, and `problems`, each with
    `severity`, `message`, `field`, `file`, `line`, `column`, `detail`, `hint` and `rule`. The exit codes are the same.
    """
    if output == "json":
        return _validate_as_json(source, settings)
    from kfjob.api.target import explain_backend

    try:
        planned = _validate(source, settings)
        planned.check_findings(notify)
    finally:
        with suppress(KfjobError):  # the kubeconfig cannot be read
            backend, reason = explain_backend(settings)
            if source.templates:
                backend, reason = "kubernetes", "a template has objects of Kubernetes"
            click.echo(f"checked for {'this machine' if backend == 'local' else 'Kubernetes'}: {reason}", err=True)
    click.echo(f"`{source.name}` is valid: {planned.summary}", err=True)
    return 0


def _validate(source: Source, settings: Settings) -> Planned | PlannedTemplate:
    """Return the plan of a spec or a template; the findings of a spec include what this machine lacks.

    Raises:
        KfjobError: the spec or the template is not valid or cannot be read.
    """
    if source.templates:
        return plan_source(source, settings)
    from kfjob.api.planning import plan_job
    from kfjob.api.target import find_target
    from kfjob.api.target_needs import find_target_needs

    return plan_job(read_spec(source, settings, check=find_target_needs), find_target(settings), check=find_target_needs)


def _validate_as_json(source: Source, settings: Settings) -> int:
    """Print the problems of the spec as JSON, and return the exit code."""
    from kfjob.api.target import explain_backend

    problems: tuple[Problem, ...]
    code = 0
    backend: tuple[str | None, str | None] = (None, None)
    try:
        planned = _validate(source, settings)
        planned.check_findings(ignore_notice)
        problems = (*planned.warnings, *planned.findings)
    except SpecError as err:
        problems, code = err.problems, err.exit_code
    except KfjobError as err:
        problems, code = (Problem(title=err.title, file=err.location, detail=err.cause, hint=err.hint),), err.exit_code
    described = [describe_problem(problem) for problem in problems]
    with suppress(KfjobError):  # the kubeconfig cannot be read
        backend = explain_backend(settings)
    if source.templates:
        backend = ("kubernetes", "a template has objects of Kubernetes")
    checked = {"file": source.name, "valid": code == 0, "backend": backend[0], "backend_reason": backend[1]}
    print_json({**checked, "problems": described}, indent=2)
    return code
