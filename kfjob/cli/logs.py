"""logs: what the pods of a job print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from kfjob.cli.log_writer import Form, LogWriter
from kfjob.cli.options import Settings, from_option, notify, output, where
from kfjob.cli.parameter_types import PATTERN, SINCE
from kfjob.events import TRAINING_CONTAINER

if TYPE_CHECKING:
    from kfjob.api.logs.read import Line
    from kfjob.api.logs.selection import PodSelection
    from kfjob.api.run import Run
    from kfjob.backends.base import LogRange


_PARTS: dict[str, tuple[Any, ...]] = {
    "follow": (False,),
    "previous": (False,),
    "container": (TRAINING_CONTAINER,),
    "tail": (None,),
    "since": (None,),
}
"""Options that ask for a part of a log, with what stands for none: where the first error is decides that too."""


@click.command()
@click.argument("job", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until the job has ended.")
@click.option("--master", is_flag=True, help="Only the pod that prints the progress; the default with `-f`.")
@click.option("--all", "everybody", is_flag=True, help="Every pod; the default without `-f`.")
@click.option("--rank", "ranks", metavar="RANKS", help="The pods of these global ranks: `0,8-15,last`.")
@click.option("--node", "nodes", multiple=True, help="The pods on this node; may be given several times.")
@click.option("--pod", "pods", multiple=True, help="This pod; may be given several times.")
@click.option("--failed", is_flag=True, help="Only pods that have failed.")
@click.option("--first-error", is_flag=True, help="The lines around the first error of the job, wherever it was.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last so many lines of each pod.")
@click.option("--since", type=SINCE, metavar="TIME", help="Only lines since then: `10m`, `2026-11-21T08:30:00Z`.")
@click.option("--timestamps", is_flag=True, help="Put the time before each line.")
@click.option("-c", "--container", default=TRAINING_CONTAINER, show_default=True, help="The container of the pods.")
@click.option("-p", "--previous", is_flag=True, help="Of the container before the last restart.")
@click.option("--include", multiple=True, type=PATTERN, metavar="REGEX", help="Only lines in which one of these is found.")
@click.option("--exclude", multiple=True, type=PATTERN, metavar="REGEX", help="No lines in which one of these is found.")
@click.option("--highlight", multiple=True, type=PATTERN, metavar="REGEX", help="Mark what is found.")
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="`auto`: on a terminal.")
@from_option
@output("default", "raw", "json")
@where
def logs(*, job: str | None, folder: str | None, settings: Settings, **said: Any) -> None:
    """Print the logs of a job's pods, merged by time; with several pods each line begins with its pod.

    `--pod`, `--node` and `--rank` together mean the pods that any of them names. With `-f` it goes on across restarts of
    containers and pods, and for the pod that prints progress across hand-overs.
    """
    from kfjob.api.logs.selection import PodSelection, ranks
    from kfjob.backends.base import LogRange
    from kfjob.cli.status import open_run

    spans = ranks(said["ranks"]) if said["ranks"] else ()
    choice = PodSelection(pods=said["pods"], nodes=said["nodes"], ranks=spans, failed=said["failed"])
    _refuse_contradictions(choice, said)
    run = open_run(job, folder, settings)
    wanted = LogRange(**{name: said[name] for name in ("container", "tail", "since", "previous", "follow")})
    names, lines = _lines(run, choice, wanted, said)
    form = Form(
        kind=said["output"],
        colour=said["color"] == "always" or (said["color"] == "auto" and sys.stdout.isatty() and "NO_COLOR" not in os.environ),
        timed=run.kept is not None and (said["timestamps"] or said["since"] is not None),
        **{name: said[name] for name in ("timestamps", "include", "exclude", "highlight")},
    )
    LogWriter(form, names, sys.stdout, notify).write(lines, live=wanted.follow)


def _lines(run: Run, choice: PodSelection, wanted: LogRange, said: dict[str, Any]) -> tuple[Sequence[str], Iterable[Line]]:
    """The pods that lines may come from, and the lines."""
    from kfjob.api.logs import read as api
    from kfjob.api.logs.selection import PodSelection

    if said["first_error"]:
        return _first_error(run, wanted)
    everybody = said["everybody"] or choice.named or choice.failed
    if wanted.follow and not everybody:
        return (), api.follow_master(run, wanted, notify)
    if said["master"]:
        choice = PodSelection(pods=(run.master().pod,))
    names = [pod.pod for pod in api.chosen(run, choice)]
    if wanted.follow:
        return names if choice.pods or choice.ranks else [*names, *run.config.workers], api.follow(run, choice, wanted)
    return names, api.read(run, choice, wanted)


def _first_error(run: Run, wanted: LogRange) -> tuple[Sequence[str], Iterable[Line]]:
    from kfjob.api.diagnose import examine
    from kfjob.api.logs.read import around
    from kfjob.errors import NoEvidence

    found = examine(run).diagnosis.first_cause
    if found is None:
        raise NoEvidence(f"no error was found in the logs of `{run.name}`", hint=f"`kfjob diagnose {run.name}` says what was")
    place = f"line {found.line} of `{found.pod}`" if found.line else f"pod `{found.pod}`"
    notify(f"{place}{', before its restart' if found.previous else ''}: {found.title}")
    return (), around(run, found, wanted)


def _refuse_contradictions(choice: PodSelection, said: dict[str, Any]) -> None:
    """Options that ask for different things."""
    named, first_error = choice.named or choice.failed, said["first_error"]
    groups = (
        {"`--master`": said["master"], "`--all`": said["everybody"], "`--first-error`": first_error, "a choice of pods": named},
        {"`--follow`": said["follow"], "`--previous`": said["previous"]},
        *({"`--first-error`": first_error, f"`--{part}`": said[part] not in unset} for part, unset in _PARTS.items()),
    )
    for group in groups:
        given = [option for option, is_given in group.items() if is_given]
        if len(given) > 1:
            from kfjob.errors import UsageError

            raise UsageError(f"{given[0]} and {given[1]} do not go together")
