"""The command `exec`: run a command in a pod of a job."""

from __future__ import annotations

import sys

import click

from kfjob.base.errors import UsageError
from kfjob.cli.completion import LIVE_JOB, POD
from kfjob.cli.open_reader import POD_PREFIX, open_live_or_archived
from kfjob.cli.options import Settings, target_options
from kfjob.cli.output import find_stream
from kfjob.cli.parameter_types import WHOLE


@click.command("exec", options_metavar="[OPTIONS]")
@click.argument("job", type=LIVE_JOB)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--rank",
    type=WHOLE,
    metavar="N",
    help="The pod of this global rank. Default: the pod that prints the progress.",
)
@click.option("--pod", metavar="POD", type=POD, help="The pod of this name.")
@click.option("-i", "--stdin", "has_input", is_flag=True, help="Pass standard input to the command. Default in a terminal.")
@target_options
def execute(
    *,
    job: str,
    command: tuple[str, ...],
    rank: int | None,
    pod: str | None,
    has_input: bool,
    settings: Settings,
) -> int:
    """Run a command in the container of a pod: `kfjob exec train -- nvidia-smi`, `kfjob exec train --rank 8 -- bash`.

    The exit code is that of the command. In a terminal the command gets a terminal too.

    On this machine the command gets the environment, the working directory and the volumes of the pod's agent.
    """
    from kfjob.api.execute import execute as execute_command
    from kfjob.backends.base import CommandStreams

    if rank is not None and pod:
        raise UsageError("`--rank` and `--pod` cannot be used together")
    reader = open_live_or_archived(job, settings)
    stdin, stdout, stderr = (find_stream(stream) for stream in (sys.stdin, sys.stdout, sys.stderr))
    is_terminal = stdin is not None and stdin.isatty() and stdout.isatty()
    streams = CommandStreams(
        stdout=stdout.fileno(),
        stderr=stderr.fileno(),
        stdin=stdin.fileno() if is_terminal or has_input else None,
        terminal=is_terminal,
    )
    return execute_command(reader, command, streams, pod=pod and pod.removeprefix(POD_PREFIX), rank=rank)
