"""master: which pod prints the training progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kfjob.cli.options import Settings, from_option, output, print_json, where
from kfjob.cli.parameter_types import SPAN

if TYPE_CHECKING:
    from kfjob.api.run import Run
    from kfjob.observe.master import Master


@click.command()
@click.argument("job", required=False)
@from_option
@click.option("--wait", default=0.0, type=SPAN, metavar="TIME", help="Wait for evidence up to so long: `30`, `5m`.")
@click.option("--watch", is_flag=True, help="Tell every hand-over, until the job has ended.")
@click.option("--all", "everybody", is_flag=True, help="Every pod: its rank in each round, who prints, and how we know.")
@click.option("--fresh", is_flag=True, help="Look again, even if a moment ago it was confirmed who prints.")
@output("text", "name", "json")
@where
def master(
    *,
    job: str | None,
    folder: str | None,
    wait: float,
    watch: bool,
    everybody: bool,
    fresh: bool,
    output: str,
    settings: Settings,
) -> None:
    """Name the pod that prints the training progress, and how we know.

    `kubectl logs -f $(kfjob master JOB -o name)` follows it.
    """
    from kfjob.cli.status import open_run
    from kfjob.errors import UsageError

    if watch and everybody:
        raise UsageError("`--watch` and `--all` do not go together")
    known = None if watch or everybody or fresh or folder else _remembered(job, settings)
    if known:
        _print(known, output)
        return
    run = open_run(job, folder, settings)
    if watch:
        _watch(run, output)
    elif everybody:
        _everybody(run, output)
    else:
        _print(run.master(wait=wait, fresh=True), output)


def _remembered(job: str | None, settings: Settings) -> Master | None:
    """The answer of a moment ago, before anything else is asked."""
    from kfjob.api.master import cache
    from kfjob.api.target import find_target
    from kfjob.common_types import ignore_notice

    if job is None:
        return None
    known = cache.recall(find_target(settings, notify=ignore_notice), job)
    return known.master if known else None


def _print(answer: Master, output: str) -> None:
    from kfjob.cli import text

    if output == "name":
        click.echo(answer.pod)
    elif output == "json":
        click.echo(json.dumps(text.master_json(answer), indent=2))
    else:
        click.echo("\n".join(answer.explain()))


def _watch(run: Run, output: str) -> None:
    """One answer after the other, as it changes."""
    from kfjob.cli import text

    for answer in run.masters():
        if output == "name":
            click.echo(answer.pod)
        elif output == "json":
            print_json(text.master_json(answer))
        else:
            click.echo(f"{text.clock(answer.evidence.time)}  {answer.explain()[0]}")


def _everybody(run: Run, output: str) -> None:
    """Which pod had which ranks in which round."""
    from kfjob.cli import text
    from kfjob.observe.master import Master

    view = run.view()
    if output == "json":
        click.echo(json.dumps(text.rounds_json(view), indent=2))
    elif output == "name":
        click.echo("\n".join(view.pods))
    else:
        click.echo(text.rounds_text(view))
        if isinstance(view.master, Master):
            click.echo("\n" + "\n".join(view.master.explain()))
        else:
            raise view.master.to_error(run.name)
