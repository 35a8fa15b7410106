"""The command `master`: find the pod that prints the training progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from kfjob.base.errors import UsageError
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import check_has_pods, name_pod, open_reader
from kfjob.cli.options import Settings, from_option, output_option, progress_option, target_options
from kfjob.cli.output import print_json
from kfjob.cli.parameter_types import DURATION

if TYPE_CHECKING:
    from kfjob.api.reader import JobReader
    from kfjob.joblog.master.evidence import Master


@click.command()
@click.argument("job", required=False, type=JOB)
@from_option
@progress_option
@click.option(
    "--wait", default=0.0, type=DURATION, metavar="TIME", help="Wait this long for evidence: seconds, or for example `5m`."
)
@click.option("--watch", is_flag=True, help="Print a line whenever another pod takes over, until the job ends.")
@click.option("--all", "all_pods", is_flag=True, help="Show the ranks of every pod in each rendezvous round.")
@click.option("--fresh", is_flag=True, help="Read the logs again; do not use the cached answer.")
@output_option("text", "name", "json")
@target_options
def master(
    *,
    job: str | None,
    folder: str | None,
    pattern: str | None,
    wait: float,
    watch: bool,
    all_pods: bool,
    fresh: bool,
    output: str,
    settings: Settings,
) -> None:
    """Find the pod that prints the training progress, and show the evidence.

    `-o name` prints what kubectl takes: `kubectl port-forward $(kfjob master JOB -o name) 6006`. Pass kubectl the same `-n` and
    `--context`.
    """
    if watch and all_pods:
        raise UsageError("`--watch` and `--all` cannot be used together")
    cached = None if watch or all_pods or fresh or folder else _cached_answer(job, settings)
    if cached:
        _print(cached, output)
        return
    from kfjob.api.master.cache import find_master

    reader = open_reader(job, folder, settings, pattern=pattern)
    if output == "name":
        check_has_pods(reader)
    if watch:
        _watch(reader, output)
    elif all_pods:
        _print_rounds(reader, output)
    else:
        _print(find_master(reader, timeout=wait, fresh=True), output)


def _cached_answer(job: str | None, settings: Settings) -> Master | None:
    """Return the cached answer if it is still valid; this needs one request at most."""
    from kfjob.api.master import cache
    from kfjob.api.target import find_target
    from kfjob.base.common_types import ignore_notice

    if job is None:
        return None
    entry = cache.load_master(find_target(settings, notify=ignore_notice), job)
    return entry.master if entry else None


def _print(answer: Master, output: str) -> None:

    if output == "name":
        click.echo(name_pod(answer.pod))
    elif output == "json":
        print_json(to_builtins(answer), indent=2)
    else:
        click.echo("\n".join(answer.explain()))


def _watch(reader: JobReader, output: str) -> None:
    """Print every new answer on a line."""
    from kfjob.api.master.discover import watch_masters
    from kfjob.cli.formatting import utc_clock

    for answer in watch_masters(reader):
        if output == "name":
            click.echo(name_pod(answer.pod))
        elif output == "json":
            print_json(to_builtins(answer))
        else:
            click.echo(f"{utc_clock(answer.evidence.time)}  {answer.explain()[0]}")


def _print_rounds(reader: JobReader, output: str) -> None:
    """Print which pod had which ranks in which round.

    Raises:
        NoEvidence: no pod prints progress.
    """
    from kfjob.api.view import read_view
    from kfjob.cli.view_json import rounds_json
    from kfjob.cli.view_text import rounds_text
    from kfjob.joblog.master.evidence import Master

    view = read_view(reader)
    if output == "json":
        print_json(rounds_json(view), indent=2)
    elif output == "name":
        click.echo("\n".join(map(name_pod, view.pods)))
    else:
        click.echo(rounds_text(view))
        if not isinstance(view.master, Master):
            raise view.master.to_error(reader.ref.name)
        click.echo("\n" + "\n".join(view.master.explain()))
