"""The commands `submit`, `apply`, `render` and `validate`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from kfjob.base.common_types import ignore_notice
from kfjob.base.errors import KfjobError, Problem, SpecError
from kfjob.cli.error_output import describe_problem
from kfjob.cli.image_options import ImageOptions, build_options, plan_build
from kfjob.cli.options import (
    Settings,
    code_options,
    kind_option,
    notify,
    output_option,
    python_option,
    quiet_option,
    strict_option,
    target_options,
)
from kfjob.cli.output import hide_secrets, print_json, repeat_namespace, write_data
from kfjob.cli.spec_options import spec_or_template

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.api.job_files import JobFiles
    from kfjob.api.lifecycle.dry_run import DryRun
    from kfjob.api.prepared import JobSource, PreparedJob
    from kfjob.api.target import Target

_DRY_RUN_HELP = "Create nothing. `client` checks the spec here; `server` sends it to the API server as a dry run."


@click.command()
@spec_or_template
@click.option("-f", "--follow", "should_follow", is_flag=True, help="Follow the job after the submit. Ctrl-C detaches.")
@quiet_option
@click.option("--dry-run", type=click.Choice(["client", "server"]), help=_DRY_RUN_HELP)
@output_option("name", "json")
@target_options
@kind_option
@python_option
@strict_option
@code_options
@build_options
def submit(
    *,
    files: JobFiles,
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
    if build and not dry_run and not files.templates:
        from kfjob.api.target import find_target

        find_target(settings, notify=notify).check_namespace()
    job_source = files.open(settings, hide=hide_secrets, build=plan_build(build, settings, dry_run=bool(dry_run), code=code))
    if dry_run:
        checked = _dry_run(job_source, dry_run, settings, code)
        if output == "json":
            print_json(checked.describe())
        else:
            click.echo(checked.name)
        click.echo(f"`{checked.name}` {checked.result}; nothing was created", err=True)
        return 0
    target = job_source.find_target(settings, notify=notify, to_run=True)
    return submit_and_follow(job_source, target, code=code, output=output, should_follow=should_follow, quiet=quiet)


def submit_and_follow(
    job_source: JobSource, target: Target, *, code: CodeLayer | None, output: str, should_follow: bool, quiet: bool
) -> int:
    """Submit a job, say so, follow it if `should_follow`, and return the exit code."""
    from kfjob.api.lifecycle.submit import submit as submit_source
    from kfjob.api.reader import describe_ref
    from kfjob.api.target import find_target
    from kfjob.cli.follow import follow

    reader, is_new = submit_source(job_source, target, code=code, notify=notify)
    if reader.ref.namespace != find_target(target.settings).namespace:
        repeat_namespace(reader.ref.namespace)
    if reader.config.recovery and target.capabilities.has_api_server:
        _warn_of_missing_guard(target.change(namespace=reader.ref.namespace))
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


def _warn_of_missing_guard(target: Target) -> None:
    from kfjob.guard.install import find_missing_guard

    if notice := find_missing_guard(target):
        notify(f"warning: {notice}")


def _dry_run(job_source: JobSource, mode: Any, settings: Settings, code: CodeLayer | None) -> DryRun:
    from kfjob.api.lifecycle.dry_run import dry_run

    return dry_run(job_source, mode, settings=settings, notify=notify, code=code)


@click.command()
@spec_or_template
@target_options
@kind_option
@strict_option
def apply(*, files: JobFiles, settings: Settings) -> None:
    """Change the live job to match SPEC, if the change is possible in place.

    `kfjob diff` shows which changes are. With --template, the job's other objects change too.
    """
    from kfjob.api.lifecycle.start import apply as apply_source

    job_source = files.open(settings, hide=hide_secrets)
    reader = apply_source(job_source, job_source.find_target(settings, notify=notify, to_run=True), notify=notify)
    click.echo(reader.ref.name)
    click.echo(f"applied `{files.name}` to `{reader.ref.name}`", err=True)


@click.command()
@spec_or_template
@output_option("yaml", "json")
@target_options
@kind_option
@strict_option
def render(*, files: JobFiles, output: str, settings: Settings) -> None:
    """Print the manifests that `kfjob submit` would create.

    They are the same byte for byte, except for the launch id. Templates without a PyTorchJob are printed with their values:
    `kfjob render --template FILE --env | kubectl apply -f -`.
    """
    from kfjob.source.yaml_writer import format_manifests

    settings = replace(settings, backend="kubernetes")
    job_source = files.open(settings, hide=hide_secrets, is_submitted=False)
    write_data(format_manifests(job_source.render(settings, notify=notify), output))


@click.command()
@spec_or_template
@output_option("text", "json")
@target_options
@kind_option
@python_option
@strict_option
def validate(*, files: JobFiles, output: str, settings: Settings) -> int:
    """Check SPEC, and report every problem with its file, line and column.

    The checks depend on the backend; `--backend` selects it, and the output names it.

    With `-o json`, standard output is one object: `file`, `valid`, `backend`, `backend_reason`, and `problems`, each with
    `severity`, `message`, `field`, `file`, `line`, `column`, `detail`, `hint` and `rule`. The exit codes are the same.
    """
    if output == "json":
        return _validate_as_json(files, settings)
    try:
        job = _validate(files, settings)
        job.check_findings(notify)
    finally:
        with suppress(KfjobError):  # the kubeconfig cannot be read
            backend, reason = files.explain_backend(settings)
            click.echo(f"checked for {'this machine' if backend == 'local' else 'Kubernetes'}: {reason}", err=True)
    click.echo(f"`{files.name}` is valid: {job.summary}", err=True)
    return 0


def _validate(files: JobFiles, settings: Settings) -> PreparedJob:
    """Return the job of a source; the findings include what its target lacks.

    Raises:
        KfjobError: the source is not valid or cannot be read.
    """
    job_source = files.open(settings, hide=hide_secrets)
    target = job_source.find_target(settings, notify=ignore_notice)
    from kfjob.api.target_needs import add_target_needs  # after the job: a deeper chain of imports takes longer

    return add_target_needs(job_source.prepare(target, notify=notify))


def _validate_as_json(files: JobFiles, settings: Settings) -> int:
    """Print the problems of the source as JSON, and return the exit code."""
    problems: tuple[Problem, ...]
    code = 0
    backend: tuple[str | None, str | None] = (None, None)
    try:
        job = _validate(files, settings)
        job.check_findings(ignore_notice)
        problems = (*job.warnings, *job.findings)
    except SpecError as err:
        problems, code = err.problems, err.exit_code
    except KfjobError as err:
        problems, code = (Problem(title=err.title, file=err.location, detail=err.cause, hint=err.hint),), err.exit_code
    described = [describe_problem(problem) for problem in problems]
    with suppress(KfjobError):  # the kubeconfig cannot be read
        backend = files.explain_backend(settings)
    checked = {"file": files.name, "valid": code == 0, "backend": backend[0], "backend_reason": backend[1]}
    print_json({**checked, "problems": described}, indent=2)
    return code
