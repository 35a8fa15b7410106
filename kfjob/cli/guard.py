"""The command group `guard`: continue jobs while nobody follows them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, output_option, target_options
from kfjob.cli.output import print_json
from kfjob.cli.parameter_types import WholeNumber

if TYPE_CHECKING:
    from kfjob.api.target import Target


@click.group()
def guard() -> None:
    """Continue failed jobs while nobody follows them: one small pod in each namespace.

    The guard relaunches a job with `recovery` in its spec when a pod, a node or the network was lost, and enforces the limits
    of `watchdog`. On this machine nothing is installed: each such job has a guard of its own.
    """


@guard.command()
@click.option("--image", required=True, help="Image of the guard: the target `guard` of kfjob's Dockerfile.")
@click.option(
    "--archive-claim", "claim", metavar="NAME", help="Volume claim for the logs; default: a volume of the guard's pod."
)
@click.option(
    "--archive-secret",
    metavar="SECRET",
    help="Existing Secret whose keys are variables of the guard, such as `AWS_ACCESS_KEY_ID`; default: the pod's own role.",
)
@click.option(
    "--notify-secret",
    metavar="SECRET",
    help="Existing Secret for notifications; its key `KFJOB_NOTIFY` has the addresses, URLs of apprise.",
)
@click.option("--dry-run", is_flag=True, help="Print the manifests as YAML; change nothing.")
@click.option(
    "--archive",
    metavar="ADDRESS",
    help="Copy the logs to `s3://BUCKET/PREFIX`. Default: the setting `archive`, else no copy.",
)
@target_options
def install(
    *,
    image: str,
    claim: str | None,
    archive: str | None,
    archive_secret: str | None,
    notify_secret: str | None,
    dry_run: bool,
    settings: Settings,
) -> None:
    """Install the guard in a namespace, or change the installed one."""
    from kfjob.backends.s3_archive import check_address
    from kfjob.guard.install import install as install_guard
    from kfjob.guard.manifests import GuardOptions, make_objects
    from kfjob.source.yaml_writer import write_yaml

    target = _find_target(settings)
    options = GuardOptions(
        image=image,
        claim=claim,
        archive=check_address(archive) if archive else settings.archive,
        archive_secret=archive_secret,
        notify_secret=notify_secret,
    )
    if dry_run:
        click.echo(write_yaml(make_objects(options, namespace=target.namespace)), nl=False)
        return
    for name in install_guard(target, options):
        click.echo(name)
    click.echo(f"installed in namespace `{target.namespace}`; `kfjob guard status` shows its state", err=True)


@guard.command()
@output_option("text", "json")
@target_options
def status(*, output: str, settings: Settings) -> None:
    """Show the guard of a namespace or of this machine, and the jobs with `recovery`."""
    from msgspec import to_builtins

    from kfjob.api.target import find_target
    from kfjob.guard.install import describe_status, read_status

    target = find_target(settings)
    state = read_status(target)
    if output == "json":
        print_json(to_builtins(state), indent=2)
    else:
        click.echo("\n".join(describe_status(state, target)))


@guard.command()
@target_options
def uninstall(*, settings: Settings) -> None:
    """Remove the guard of a namespace. Its jobs go on, and nobody relaunches them."""
    from kfjob.guard.install import uninstall as uninstall_guard

    target = _find_target(settings)
    for name in uninstall_guard(target):
        click.echo(name)


@guard.command()
@click.option(
    "--metrics-port",
    metavar="N",
    type=WholeNumber(1, 65535),
    help="Serve metrics for Prometheus at `/metrics` of this port; default: no metrics.",
)
@target_options
def run(*, metrics_port: int | None, settings: Settings) -> None:
    """Guard the jobs of a namespace in this process, without an end.

    `kfjob guard install` runs it in a pod. A second guard of the namespace waits until the first one has ended.
    With `KFJOB_NOTIFY` (URLs of apprise, separated by white space) it sends a notification about each decision.
    """
    from kfjob.guard.run import run_guard

    run_guard(_find_target(settings), _say, metrics_port=metrics_port)


def _find_target(settings: Settings) -> Target:
    from kfjob.api.target import make_target

    return make_target(settings, "kubernetes")


def _say(text: str) -> None:
    from kfjob.objects.reading import format_time

    sys.stdout.write(f"{format_time(time.time())} {text}\n")
    sys.stdout.flush()
