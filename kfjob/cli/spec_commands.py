"""explain, diff, schema, instances: the commands that say more about a spec."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from msgspec import to_builtins

from kfjob.cli.options import Settings, Source, notify, output, read_spec, spec, where

LONGEST = 72  # characters of a value in a table


@click.command()
@spec
@click.option("--operator-env", is_flag=True, help="The environment that the operator will add to a pod.")
@click.option("--node-rank", default=0, show_default=True, metavar="N", help="Of which pod (with --operator-env).")
@output("table", "json")
@where
def explain(*, source: Source, operator_env: bool, node_rank: int, output: str, settings: Settings) -> None:
    """Show every value of a job: what it is, where it comes from (spec, instance, default, cluster), and why."""
    from kfjob.api.specs.explain import explain as explained
    from kfjob.cli.text import table

    found = explained(read_spec(source), settings=settings, notify=notify)
    if operator_env:
        env = found.operator_environment(node_rank)
        if output == "json":
            click.echo(json.dumps(env, indent=2))
        else:
            click.echo(table(("NAME", f"VALUE IN {found.plan.pods[node_rank]}"), list(env.items())))
    elif output == "json":
        click.echo(json.dumps([asdict(value) for value in found.values], indent=2))
    else:
        rows = [(value.path, _short(value.value), value.origin, value.reason or value.place) for value in found.values]
        click.echo(table(("FIELD", "VALUE", "FROM", "WHY OR WHERE"), rows))


@click.command()
@spec
@output("text", "json")
@where
def diff(*, source: Source, output: str, settings: Settings) -> None:
    """Show what SPEC would change at the live job, gone through by the API server; nothing is changed.

    Each change has a label: `in place` (`kfjob apply` makes it) or `needs a new launch` (`kfjob stop`, then `kfjob submit`).
    """
    from kfjob.api.specs.diff import diff_loaded

    name, changes = diff_loaded(read_spec(source), settings=settings, notify=notify)
    if output == "json":
        click.echo(json.dumps({"job": name, "changes": to_builtins(changes)}, indent=2))
        return
    for change in changes:
        click.echo(f"{change.path}  ({'in place' if change.in_place else 'needs a new launch'})")
        click.echo(f"  - {_shown(change.live)}\n  + {_shown(change.desired)}")
    if not changes:
        click.echo(f"`{name}` is what the spec says", err=True)
    elif all(change.in_place for change in changes):
        click.echo("hint: `kfjob apply` makes these changes in place", err=True)
    else:
        click.echo(f"hint: `kfjob stop {name}`, then submit the spec: the pods that run would keep what they have", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of a spec, for editors."""
    from kfjob.api.specs.schema import schema as made

    click.echo(json.dumps(made(), indent=2))


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--refresh", is_flag=True, help="Read EC2, and say what differs from the catalogue.")
@click.option("--region", help="Of EC2; unset: the one that is configured.")
@output("table", "json")
def instances(*, names: tuple[str, ...], refresh: bool, region: str | None, output: str) -> None:
    """List the instance types of the catalogue, all or those whose name begins with NAME."""
    from kfjob.api.specs import instances as catalogue
    from kfjob.cli.text import table

    if refresh:
        _compared(catalogue.compare(region=region), output)
        return
    found = [one for one in catalogue.instances() if not names or one.name.startswith(names)]
    if output == "json":
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    rows = [
        (
            one.name,
            f"{one.gpus or one.neuron} x {one.accelerator}",
            *map(str, (one.gpu_memory, one.efa, one.vcpus, one.memory)),
            "checked" if one.checked else "published tables",
        )
        for one in found
    ]
    click.echo(table(("INSTANCE", "DEVICES", "GIB EACH", "EFA", "VCPUS", "GIB HOST", "SOURCE"), rows))


def _compared(comparison: Any, output: str) -> None:
    from kfjob.cli.text import table

    if output == "json":
        click.echo(json.dumps(comparison.describe(), indent=2))
        return
    rows = [(one.name, one.field, str(one.here), str(one.ec2)) for one in comparison.differences]
    if rows:
        click.echo(table(("INSTANCE", "FIELD", "CATALOGUE", "EC2"), rows))
    said = f"{len(comparison.compared)} types compared in {comparison.region}, numbers that differ: {len(rows)}"
    click.echo(said + (f"; not there: {', '.join(comparison.not_there)}" if comparison.not_there else ""), err=True)


def _shown(value: Any) -> str:
    """A value in one line."""
    return "(not there)" if value is None else value if isinstance(value, str) else json.dumps(value)


def _short(value: str) -> str:
    line = " ".join(value.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
