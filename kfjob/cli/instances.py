"""The command `instances`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kfjob.base.text import join_names, plural
from kfjob.cli.completion import INSTANCE
from kfjob.cli.options import notify, output_option
from kfjob.cli.output import print_json

if TYPE_CHECKING:
    from kfjob.api.specs.instances import Comparison


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=INSTANCE)
@click.option("--refresh", is_flag=True, help="Compare the catalogue with EC2, and add the types that only EC2 knows.")
@click.option("--region", metavar="REGION", help="AWS region for --refresh. Default: the configured region.")
@output_option("table", "json")
def instances(*, names: tuple[str, ...], refresh: bool, region: str | None, output: str) -> None:
    """List the instance types that kfjob knows.

    With NAME, list only the types whose name begins with it.
    """
    from kfjob.api.settings import load_current_settings
    from kfjob.api.specs import instances as catalogue
    from kfjob.cli.formatting import format_table
    from kfjob.spec.instances import list_instances

    if refresh:
        comparison = catalogue.compare_with_ec2(region=region)
        if comparison.added:
            file = catalogue.save_instances(comparison.added, load_current_settings().state)
            names_added = ", ".join(instance.name for instance in comparison.added)
            notify(f"added {plural(len(comparison.added), 'instance type')} in `{file}`: {names_added}")
        _print_comparison(comparison, output)
        return
    load_current_settings()
    types = [instance for instance in list_instances() if not names or instance.name.startswith(names)]
    if output == "json":
        print_json([asdict(instance) | {"checked": instance.checked} for instance in types], indent=2)
        return
    if not types:
        notify(f"no known instance type begins with {join_names(f'`{name}`' for name in names)}")
        return
    rows = [
        (
            instance.name,
            f"{instance.gpus or instance.neuron} x {instance.accelerator}" if instance.accelerator else "none",
            str(instance.gpu_memory or "-"),
            *map(str, (instance.efa, instance.vcpus, instance.memory)),
            "yes" if instance.checked else "no",
        )
        for instance in types
    ]
    header = ("INSTANCE TYPE", "ACCELERATORS", "GIB PER ACCELERATOR", "EFA", "VCPUS", "HOST GIB", "VERIFIED")
    click.echo(format_table(header, rows))


def _print_comparison(comparison: Comparison, output: str) -> None:
    from kfjob.cli.formatting import format_table

    if output == "json":
        print_json(comparison.describe(), indent=2)
        return
    rows = [
        (difference.name, difference.field, str(difference.catalogue), str(difference.ec2))
        for difference in comparison.differences
    ]
    if rows:
        click.echo(format_table(("INSTANCE TYPE", "FIELD", "CATALOGUE", "EC2"), rows))
    count = plural(len(comparison.compared), "instance type")
    missing = f"; not in this region: {', '.join(comparison.missing)}" if comparison.missing else ""
    click.echo(f"compared {count} in {comparison.region}: {plural(len(rows), 'difference')}{missing}", err=True)
