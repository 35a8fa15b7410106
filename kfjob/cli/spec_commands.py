"""The commands `explain`, `diff` and `schema`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins
from msgspec.structs import asdict

from kfjob.base.common_types import ignore_notice
from kfjob.base.printable import encode_json
from kfjob.cli.options import Settings, kind_option, notify, output_option, python_option, target_options
from kfjob.cli.output import hide_secrets, print_json, write_data
from kfjob.cli.parameter_types import WHOLE
from kfjob.cli.spec_options import spec_or_template
from kfjob.redaction import Redactor

if TYPE_CHECKING:
    from kfjob.api.job_files import JobFiles

MAX_VALUE_WIDTH = 72
"""Characters of a value in a table of spec fields."""


@click.command()
@spec_or_template
@click.option("--operator-env", is_flag=True, help="Show the environment variables that the operator adds to a pod.")
@click.option(
    "--node-rank",
    type=WHOLE,
    default=0,
    show_default=True,
    metavar="N",
    help="Node rank of the pod for --operator-env.",
)
@output_option("table", "json")
@target_options
@kind_option
@python_option
def explain(*, files: JobFiles, operator_env: bool, node_rank: int, output: str, settings: Settings) -> None:
    """Show every value of a job, its origin, and the reason for it.

    The origin is the spec, the instance type, a default of kfjob, or the cluster. With --template it is the template, a
    variable, or the operator.
    """
    from kfjob.api.specs.explain_template import explain as explain_job
    from kfjob.api.target_needs import add_target_needs
    from kfjob.cli.formatting import format_table

    job_source = files.open(settings, hide=hide_secrets)
    target = job_source.find_target(settings, notify=ignore_notice)
    explanation = explain_job(add_target_needs(job_source.prepare(target, notify=notify)))
    for problem in () if operator_env else explanation.findings:
        notify("\n".join(problem.lines()))
    if operator_env:
        env = Redactor().value({"env": explanation.operator_environment(node_rank)})["env"]
        if output == "json":
            print_json(env, indent=2)
        else:
            click.echo(format_table(("NAME", f"VALUE IN {explanation.pods[node_rank]}"), list(env.items())))
    elif output == "json":
        print_json([asdict(value) for value in explanation.values], indent=2)
    else:
        rows = [
            (value.path, _shorten(value.value), value.origin, value.reason or value.location) for value in explanation.values
        ]
        click.echo(format_table(("FIELD", "VALUE", "ORIGIN", "REASON OR POSITION"), rows))


@click.command()
@spec_or_template
@output_option("text", "json")
@target_options
@kind_option
def diff(*, files: JobFiles, output: str, settings: Settings) -> None:
    """Show what SPEC would change in the live job. Nothing is changed.

    The API server fills in its defaults first, as a dry run. Each change has a label: `in place` (`kfjob apply` makes it)
    or `needs a new launch` (`kfjob stop`, then `kfjob submit`).
    """
    from kfjob.api.lifecycle.start import diff as diff_source

    job_source = files.open(settings, hide=hide_secrets)
    target = job_source.find_target(settings, notify=notify, to_run=True)
    name, changes = diff_source(job_source, target, notify=notify)
    if output == "json":
        print_json({"name": name, "changes": to_builtins(changes)}, indent=2)
        return
    for change in changes:
        click.echo(f"{change.path}  ({'in place' if change.in_place else 'needs a new launch'})")
        click.echo(f"  - {_format_value(change.live)}\n  + {_format_value(change.desired)}")
    if not changes:
        click.echo(f"no changes: `{name}` matches the {job_source.noun}", err=True)
        return
    if all(change.in_place for change in changes):
        click.echo(f"hint: `kfjob apply {files.arguments}` makes these changes in place", err=True)
    else:
        hint = f"hint: `kfjob stop {name}`, then `kfjob submit {files.arguments}`; running pods cannot take the changes"
        click.echo(hint, err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a job spec, for editors."""
    from kfjob.api.specs.schema import build_schema

    write_data(encode_json(build_schema(), indent=2) + "\n")


def _format_value(value: object) -> str:
    return "(not set)" if value is None else value if isinstance(value, str) else json.dumps(value)


def _shorten(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= MAX_VALUE_WIDTH else f"{line[: MAX_VALUE_WIDTH - 1]}…"
