"""The command `instances`."""

from __future__ import annotations

import click
from msgspec.structs import asdict

from kfjob.base.text import join_names
from kfjob.cli.completion import INSTANCE
from kfjob.cli.options import notify, output_option
from kfjob.cli.output import print_json


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=INSTANCE)
@output_option("table", "json")
def instances(*, names: tuple[str, ...], output: str) -> None:
    """List the instance types that kfjob knows.

    With NAME, list only the types whose name begins with it.
    """
    from kfjob.cli.formatting import format_table
    from kfjob.spec.instances import load_catalogue

    types = [instance for instance in load_catalogue().values() if not names or instance.name.startswith(names)]
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
