"""The commands `watch` and `wait`, and the live view of `submit --follow`."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kfjob.base.concurrency import waiting_for
from kfjob.cli.completion import JOB
from kfjob.cli.open_reader import open_live_or_archived
from kfjob.cli.options import Settings, notify, output_option, quiet_option, target_options
from kfjob.cli.output import colour_marks
from kfjob.cli.parameter_types import DURATION
from kfjob.cli.signals import INTERRUPTED

if TYPE_CHECKING:
    from kfjob.api.reader import ArchiveReader, LiveReader
    from kfjob.joblog.events import JobPhase


@click.command()
@click.argument("job", type=JOB)
@quiet_option
@output_option("auto", "plain", "json")
@target_options
def watch(*, job: str, quiet: bool, output: str, settings: Settings) -> int:
    """Follow a job until it ends: the output of the program, progress, pods and events.

    The output is that of one pod, the one that prints the progress; `kfjob logs` shows the others. It goes to stdout, and
    everything else to stderr. `-o auto` shows a live panel in a terminal and plain lines elsewhere.

    Ctrl-C detaches; the job continues.
    """
    return follow(open_live_or_archived(job, settings), output, quiet=quiet, since=time.time_ns())


@click.command()
@click.argument("job", type=JOB)
@click.option(
    "--for",
    "goal",
    type=click.Choice(["ended", "running", "progress", "gone"]),
    default="ended",
    show_default=True,
    help="What to wait for: the end; until all pods run; the first line of progress; until the name is free.",
)
@click.option(
    "--timeout", type=DURATION, metavar="TIME", help="Stop waiting after this time, for example `5m` (exit code 124)."
)
@target_options
def wait(*, job: str, goal: str, timeout: float | None, settings: Settings) -> int:
    """Wait until a job ends, or reaches another state, and print its state.

    Exit codes: 0 succeeded or reached, 100 failed, 103 stopped, 124 timed out. The cause of a failure is printed to stderr.
    Of a job with `recovery` it waits through the guard's relaunches, until the guard gives the job up.
    """
    if goal == "gone":
        _wait_until_gone(job, timeout, settings)
        return 0
    reader = open_live_or_archived(job, settings)
    reader, phase = _wait_for_phase(reader, goal, timeout)
    click.echo(phase)
    if not phase.ended:
        return 0
    if phase == "Failed":
        _print_cause(reader)
    if phase == "Succeeded" and reader.config.trainer:
        _print_untrained(reader)
    return job_exit_code(phase)


def _wait_for_phase(
    reader: LiveReader | ArchiveReader, goal: str, timeout: float | None
) -> tuple[LiveReader | ArchiveReader, JobPhase]:
    """Return the newest launch and its phase: the guard may replace a job that has failed or does not go on."""
    from kfjob.api.lifecycle.wait import wait_for, wait_for_relaunch
    from kfjob.api.reader import LiveReader

    if not isinstance(reader, LiveReader):
        return reader, reader.snapshot().job.phase
    deadline = None if timeout is None else time.monotonic() + timeout
    awaited = {"ended": "to end", "running": "to run", "progress": "to print progress"}[goal]
    with waiting_for(f"`{reader.ref.name}` {awaited}; Ctrl-C stops the wait, not the job", timeout):
        while True:
            phase = wait_for(reader, goal, timeout=_find_remaining(deadline), notify=notify)
            if phase not in {"Failed", "Stopped"} or not reader.config.recovery:
                return reader, phase
            relaunched = wait_for_relaunch(reader, timeout=_find_remaining(deadline))
            if relaunched is None:
                return reader, phase
            notify(f"the guard has relaunched `{reader.ref.name}` (launch {relaunched.ref.launch})")
            reader = relaunched


def _find_remaining(deadline: float | None) -> float | None:
    return None if deadline is None else round(max(deadline - time.monotonic(), 0), 1)


def _wait_until_gone(job: str, timeout: float | None, settings: Settings) -> None:
    from kfjob.api.lifecycle.wait import wait_until_gone
    from kfjob.api.target import find_target

    with waiting_for(f"`{job}` to be gone; Ctrl-C stops the wait, not the job", timeout):
        wait_until_gone(find_target(settings, notify=notify), job, timeout=timeout)


def _print_cause(reader: LiveReader | ArchiveReader) -> None:
    from kfjob.api.diagnose import examine
    from kfjob.base.errors import KfjobError
    from kfjob.cli.diagnose import first_cause

    with suppress(KfjobError):  # the exit code is the answer; the cause is extra
        click.echo(colour_marks("\n".join(first_cause(examine(reader).diagnosis))), err=True)


def _print_untrained(reader: LiveReader | ArchiveReader) -> None:
    from kfjob.api.view import read_view
    from kfjob.base.errors import KfjobError
    from kfjob.cli.view_text import untrained_text

    with suppress(KfjobError):
        if text := untrained_text(read_view(reader)):
            notify(text)


def follow(reader: LiveReader | ArchiveReader, output: str, *, quiet: bool = False, since: int | None = None) -> int:
    """Show a job's events until it ends, and return the exit code. Ctrl-C detaches.

    Of the program's output before the time `since`, only the last lines are shown; with `quiet`, the output is not shown.
    """
    from kfjob.api.lifecycle.wait import follow_job
    from kfjob.api.reader import LiveReader

    name = reader.ref.name
    if not isinstance(reader, LiveReader):
        click.echo(f"`{name}` has ended; `kfjob status {shlex.quote(name)}` shows its state", err=True)
        return job_exit_code(reader.snapshot().job.phase)
    from kfjob.base.errors import JobStopped
    from kfjob.cli.display import Display, JsonDisplay
    from kfjob.joblog.program_output import ProgramOutput

    kinds: dict[str, type[Display]] = {"json": JsonDisplay, "plain": Display}
    shown = None if quiet or output == "json" else ProgramOutput(since=since)
    if output == "auto" and sys.stderr.isatty():
        from kfjob.cli.live_display import LiveDisplay

        kinds["auto"] = LiveDisplay
    kind = kinds.get(output, Display)
    display = kind(reader, shown, has_ended=reader.snapshot().job.phase.ended)
    view, notices = None, list[str]()
    try:
        with display:
            events = follow_job(reader, reads_all=display.reads_all, on_cut=display.set_cut, notify=notices.append)
            for view, event in events:
                display.update(view, event, time.monotonic())
    except JobStopped:  # by a limit of its watchdog
        if view is not None:
            display.finish(view)
        raise
    except KeyboardInterrupt:
        next_commands = f"`kfjob watch {shlex.quote(name)}` follows it again, `kfjob stop {shlex.quote(name)}` stops it"
        click.echo(f"\ndetached from `{name}`, which continues; {next_commands}", err=True)
        return INTERRUPTED
    if view is None:
        return job_exit_code(None)
    display.finish(view)
    for notice in notices:
        notify(notice)
    return job_exit_code(view.phase)


def job_exit_code(phase: JobPhase | None) -> int:
    """Return the exit code for the phase in which a job was last seen; None stands for a job without a phase."""
    from kfjob.base.errors import JobFailed, JobStopped, JobUnfinished
    from kfjob.joblog.events import JobPhase

    ends = {JobPhase.SUCCEEDED: 0, JobPhase.FAILED: JobFailed.exit_code, JobPhase.STOPPED: JobStopped.exit_code}
    return ends.get(phase, JobUnfinished.exit_code) if phase else JobUnfinished.exit_code
