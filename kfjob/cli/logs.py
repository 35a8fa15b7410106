"""The command `logs`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click
from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.errors import NoEvidence, UsageError
from kfjob.base.text import plural
from kfjob.cli.completion import JOB, POD
from kfjob.cli.log_printer import LineFormat, LogPrinter
from kfjob.cli.open_reader import POD_PREFIX, open_reader
from kfjob.cli.options import Settings, collect_options, from_option, notify, output_option, target_options
from kfjob.cli.output import open_log_output
from kfjob.cli.parameter_types import PATTERN, SINCE, WholeNumber
from kfjob.joblog.events import TRAINING_CONTAINER

if TYPE_CHECKING:
    from kfjob.api.excerpts import Line
    from kfjob.api.logs.agents import AgentFilter
    from kfjob.api.logs.selection import PodSelection
    from kfjob.api.reader import JobReader
    from kfjob.backends.base import LogRange
    from kfjob.base.patterns import Pattern

Patterns = tuple["Pattern", ...]


class LogOptions(Struct, frozen=True, kw_only=True):
    """The values of the options that select pods and lines."""

    follow: bool
    master: bool
    all_pods: bool
    ranks: str | None
    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    failed: bool
    first_error: bool
    tail: int | None
    since: int | None
    container: str
    previous: bool
    agents: bool

    def selection(self) -> PodSelection:
        """Return the selected pods."""
        from kfjob.api.logs.selection import PodSelection, parse_ranks

        ranks = parse_ranks(self.ranks) if self.ranks else ()
        return PodSelection(
            pods=tuple(pod.removeprefix(POD_PREFIX) for pod in self.pods), nodes=self.nodes, ranks=ranks, failed=self.failed
        )

    def log_range(self) -> LogRange:
        """Return the selected part of each log."""
        from kfjob.backends.base import LogRange

        return LogRange(container=self.container, tail=self.tail, since=self.since, previous=self.previous, follow=self.follow)

    def check(self) -> None:
        """Check that the options do not contradict each other.

        Raises:
            UsageError: two options cannot be used together.
        """
        pods = "--pod" if self.pods else "--node" if self.nodes else "--rank" if self.ranks else "--failed"
        has_pods = bool(self.pods or self.nodes or self.ranks or self.failed)
        parts = {
            "--follow": self.follow,
            "--previous": self.previous,
            "--container": self.container != TRAINING_CONTAINER,
            "--tail": self.tail is not None,
            "--since": self.since is not None,
        }
        groups: list[dict[str, bool]] = [
            {"--master": self.master, "--all": self.all_pods, "--first-error": self.first_error, pods: has_pods},
            {"--follow": self.follow, "--previous": self.previous},
            *({"--first-error": self.first_error, part: is_set} for part, is_set in parts.items()),
        ]
        for group in groups:
            options = [option for option, is_set in group.items() if is_set]
            if len(options) > 1:
                raise UsageError(f"`{options[0]}` and `{options[1]}` cannot be used together")


class FormatOptions(Struct, frozen=True, kw_only=True):
    """The values of the options that change how lines look."""

    timestamps: bool
    include: Patterns
    exclude: Patterns
    color: str

    def line_format(self, output: str, *, needs_times: bool) -> LineFormat:
        """Return the format for stdout."""
        is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        return LineFormat(
            kind=output,
            colour=self.color == "always" or (self.color == "auto" and is_coloured),
            timestamps=self.timestamps,
            needs_times=needs_times,
            include=self.include,
            exclude=self.exclude,
        )


MAX_LINES = 10**9
"""Lines of `--tail`; neither the API server nor C takes an integer of any size."""
_TAIL_HELP = "Only the last LINES lines of each pod. --include and --exclude come first, except with --follow."
_log_options = collect_options(
    "options",
    LogOptions,
    click.option("-f", "--follow", is_flag=True, help="Print new lines until the job ends."),
    click.option("--master", is_flag=True, help="Only the pod that prints the progress. Default with --follow."),
    click.option("--all", "all_pods", is_flag=True, help="All pods. Default without --follow."),
    click.option("--rank", "ranks", metavar="RANKS", help="Only the pods of these global ranks, for example `0,8-15,last`."),
    click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only the pods on this node. Repeatable."),
    click.option("--pod", "pods", multiple=True, metavar="POD", type=POD, help="Only this pod. Repeatable."),
    click.option("--failed", is_flag=True, help="Only pods that have failed."),
    click.option("--first-error", is_flag=True, help="Only the lines around the first error of the job."),
    click.option(
        "--tail",
        type=WholeNumber(0, MAX_LINES),
        metavar="LINES",
        help=_TAIL_HELP,
    ),
    click.option(
        "--since", type=SINCE, metavar="TIME", help="Only lines after this time, for example `10m` or `2026-11-21T08:30:00Z`."
    ),
    click.option(
        "-c", "--container", metavar="NAME", default=TRAINING_CONTAINER, show_default=True, help="Container of the pods."
    ),
    click.option("-p", "--previous", is_flag=True, help="Logs of the container before the last restart."),
    click.option("--agents", is_flag=True, help="Print the lines of torchrun's agents too; `-o raw` and `-o json` always do."),
)
_format_options = collect_options(
    "format_options",
    FormatOptions,
    click.option("--timestamps", is_flag=True, help="Prefix each line with its timestamp."),
    click.option("--include", multiple=True, type=PATTERN, metavar="REGEX", help="Only lines that match. Repeatable."),
    click.option("--exclude", multiple=True, type=PATTERN, metavar="REGEX", help="No lines that match. Repeatable."),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Use colours; `auto` does so in a terminal.",
    ),
)


@click.command()
@click.argument("job", required=False, type=JOB)
@_log_options
@_format_options
@from_option
@output_option("default", "raw", "json")
@target_options
def logs(
    *,
    job: str | None,
    options: LogOptions,
    format_options: FormatOptions,
    folder: str | None,
    output: str,
    settings: Settings,
) -> None:
    """Print the logs of a job's pods, merged by time.

    If several pods are selected, each line begins with the name of its pod. A pod is selected if --pod, --node or --rank
    names it. With --follow, the logs continue across restarts of containers and pods; without a selection they follow the
    pod that prints the progress, also when another pod takes over. The lines of torchrun's agents are left out.
    """
    from kfjob.api.logs.agents import AgentFilter

    selection = options.selection()
    options.check()
    reader = open_reader(job, folder, settings)
    needs_times = reader.archived and (format_options.timestamps or options.since is not None)
    line_format = format_options.line_format(output, needs_times=needs_times)
    out = open_log_output(raw=output == "raw", keeps_colours=line_format.colour)
    has_agents = options.agents or output != "default" or options.container != TRAINING_CONTAINER
    agents = None if has_agents else AgentFilter(line_format.includes)
    pods, lines = _select_lines(reader, options, selection, line_format, agents)
    if not (pods or options.follow or options.first_error):
        from kfjob.api.view import read_view

        notify(f"`{reader.ref.name}` has {read_view(reader, with_events=True).missing_pods or 'no pods'}")
    try:
        LogPrinter(line_format, pods, out, notify).write(lines, live=options.follow)
    finally:
        if agents and agents.left_out:
            notify(f"{plural(agents.left_out, 'line')} of torchrun's agents left out; `--agents` shows them")


def _select_lines(
    reader: JobReader, options: LogOptions, selection: PodSelection, line_format: LineFormat, agents: AgentFilter | None
) -> tuple[Sequence[str], Iterable[Line]]:
    """Return the pods that may print, and the lines to print, without those of the agents."""
    from kfjob.api.logs.merge import take_last

    log_range = options.log_range()
    if options.tail is None or options.follow or not (agents or line_format.filters):
        pods, lines = _read_lines(reader, options, selection, log_range)
        if agents and options.first_error:
            return pods, agents.filter_unless_empty(lines)
        return pods, agents.filter(lines) if agents else lines
    pods, lines = _read_lines(reader, options, selection, replace(log_range, tail=None))
    if not agents or line_format.filters:
        return pods, take_last(agents.filter(lines) if agents else lines, line_format.includes, options.tail)

    def read_last(count: int) -> Iterable[Line]:
        return _read_lines(reader, options, selection, replace(log_range, tail=count))[1]

    return pods, agents.take_last(read_last, options.tail)


def _read_lines(
    reader: JobReader, options: LogOptions, selection: PodSelection, log_range: LogRange
) -> tuple[Sequence[str], Iterable[Line]]:
    """Return the pods that may print, and the lines."""
    from kfjob.api.logs.follow import follow_logs, follow_master
    from kfjob.api.logs.merge import read_logs, select_pods
    from kfjob.api.logs.selection import PodSelection
    from kfjob.api.master.cache import find_master

    if options.first_error:
        return (), _lines_around_first_error(reader, log_range)
    has_selection = options.all_pods or selection.names_pods or selection.failed
    if options.follow and not has_selection:
        return (), follow_master(reader, log_range, notify)
    if options.master:
        selection = PodSelection(pods=(find_master(reader).pod,))
    pods = [pod.pod for pod in select_pods(reader, selection)]
    if options.follow:
        may_grow = not (selection.pods or selection.ranks)
        return [*pods, *reader.config.workers] if may_grow else pods, follow_logs(reader, selection, log_range)
    return pods, read_logs(reader, selection, log_range)


def _lines_around_first_error(reader: JobReader, log_range: LogRange) -> Iterable[Line]:
    from kfjob.api.diagnose import examine
    from kfjob.api.logs.merge import read_around

    issue = examine(reader).diagnosis.first_cause
    if issue is None:
        raise NoEvidence(
            f"no error found in the logs of `{reader.ref.name}`",
            hint=f"`kfjob diagnose {shlex.quote(reader.ref.name)}` shows the diagnosis",
        )
    location = f"line {issue.line} of `{issue.pod}`" if issue.line else f"pod `{issue.pod}`"
    notify(f"{location}{' before its restart' if issue.previous else ''}: {issue.title}")
    return read_around(reader, issue, log_range)
