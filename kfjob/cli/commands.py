"""The command line. A command's module is imported when it is called, so that `kfjob --help` loads only click."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from kfjob.base.concurrency import reporting_waits
from kfjob.base.errors import KfjobError, explain_os_error
from kfjob.base.text import find_similar
from kfjob.base.version import __version__
from kfjob.cli.error_output import print_error, print_usage_error
from kfjob.cli.output import LostOutput, WaitPrinter, clean_output, wants_colour
from kfjob.cli.signals import INTERRUPTED, SIGNAL_BASE, end_on_interrupt, find_interrupt, raise_on_interrupt

GROUPS = {
    "Start a job": {
        "run": ("kfjob.cli.run", "Run a command as a job, and follow it."),
        "submit": ("kfjob.cli.submit", "Submit a job spec to a cluster or to this machine."),
        "relaunch": ("kfjob.cli.lifecycle", "Stop a job and submit its recorded spec again."),
    },
    "Watch jobs": {
        "list": ("kfjob.cli.jobs_list", "List jobs with their progress."),
        "status": ("kfjob.cli.status", "Show a job's pods and its training progress."),
        "watch": ("kfjob.cli.follow", "Follow a job until it ends."),
        "wait": ("kfjob.cli.follow", "Wait until a job ends, runs, or prints progress."),
        "logs": ("kfjob.cli.logs", "Print the logs of a job's pods."),
        "master": ("kfjob.cli.master", "Find the pod that prints the training progress."),
    },
    "Understand a job": {
        "diagnose": ("kfjob.cli.diagnose", "Find the first cause of a failure, and how to fix it."),
        "history": ("kfjob.cli.history", "Show the launches of a job, and how each ended."),
        "compare": ("kfjob.cli.compare", "Compare the curves and specs of several launches."),
        "report": ("kfjob.cli.report", "Write an HTML report of a job."),
        "archive": ("kfjob.cli.archive", "Write a job's logs and states to one file to send."),
        "progress": ("kfjob.cli.progress", "Show which lines of a log are training progress."),
    },
    "Control a job": {
        "stop": ("kfjob.cli.lifecycle", "Archive a job's logs, then stop and remove it."),
        "exec": ("kfjob.cli.execute", "Run a command in a pod of a job."),
        "suspend": ("kfjob.cli.control", "Remove a job's pods until it is resumed."),
        "resume": ("kfjob.cli.control", "Create the pods of a suspended job again."),
        "scale": ("kfjob.cli.control", "Change the number of nodes of an elastic job."),
        "apply": ("kfjob.cli.submit", "Change a live job in place."),
        "diff": ("kfjob.cli.spec_commands", "Show what a spec would change in the live job."),
        "guard": ("kfjob.cli.guard", "Continue failed jobs while nobody follows them."),
    },
    "Write and check a spec": {
        "init": ("kfjob.cli.init", "Write a first job spec."),
        "import": ("kfjob.cli.convert", "Make a spec from a torchrun command or another tool's file."),
        "export": ("kfjob.cli.convert", "Convert a spec to another tool's file."),
        "validate": ("kfjob.cli.submit", "Check a spec, and report every problem."),
        "preflight": ("kfjob.cli.preflight", "Check what a job needs before it starts."),
        "estimate": ("kfjob.cli.estimate", "Estimate the memory, time and GPU hours of a training."),
        "explain": ("kfjob.cli.spec_commands", "Show every value of a job, its origin, and its reason."),
        "render": ("kfjob.cli.submit", "Print the manifests that submit would create."),
        "schema": ("kfjob.cli.spec_commands", "Print the JSON Schema of a spec."),
    },
    "Set up": {
        "doctor": ("kfjob.cli.doctor", "Check this machine and the cluster."),
        "push-image": ("kfjob.cli.push_image", "Build an image, push it, and pin its digest in a spec."),
        "instances": ("kfjob.cli.instances", "List the instance types that kfjob knows."),
        "completion": ("kfjob.cli.completion", "Print the completion script of a shell."),
        "help": ("kfjob.cli.help", "Show the help of a command."),
    },
}
"""The groups of the help, with the module and the summary of each command. A line has at most 80 columns."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
_SYNONYMS = {
    "rsh": "exec", "shell": "exec", "create": "submit", "start": "submit", "launch": "submit", "cancel": "stop", "kill": "stop",
    "remove": "stop", "restart": "relaunch", "pause": "suspend", "describe": "status", "show": "status", "get": "list",
    "ls": "list", "ps": "list", "delete": "stop", "rm": "stop",
    "jobs": "list", "follow": "watch", "attach": "watch", "tail": "logs", "lint": "validate", "check": "validate",
    "build": "push-image", "push": "push-image", "bundle": "archive", "convert": "import", "new": "init",
}  # fmt: skip
"""What other tools call a command; the error for an unknown name suggests it."""
_FUNCTIONS = {
    "list": "list_jobs", "exec": "execute", "import": "import_spec", "export": "export_spec", "push-image": "push_image",
    "help": "show_help",
}  # fmt: skip
"""The functions of commands whose name is taken in Python or is no identifier."""


_INTRODUCTION = (
    "Run distributed PyTorch training jobs on Kubernetes or on this machine.",
    "",
    "  kfjob run -- torchrun train.py     run a script as a job, and follow it",
    "  kfjob submit job.yaml --follow     the same for a job spec",
    "  kfjob diagnose JOB                 find out why a job failed",
    "  kfjob stop JOB                     archive a job's logs and remove it",
)


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. An OSError that it has not explained becomes a KfjobError; click would end with code 1 for EPIPE."""
        try:
            return super().invoke(ctx)
        except OSError as err:
            if find_interrupt(err) is not None:
                raise
            raise explain_os_error(err) from err

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the module of one command, and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name][0])
        raise_on_interrupt()  # from here on the command cleans up
        command: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return command

    def get_help(self, ctx: click.Context) -> str:
        """Return the help of kfjob itself. Its lines are short, so the modules that wrap text are not imported."""
        options = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        commands = [(title, [(name, text) for name, (_, text) in group.items()]) for title, group in GROUPS.items()]
        width = max(len(name) for _, rows in (*commands, ("", options)) for name, _ in rows) + 2
        lines = [f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...", "", *_INTRODUCTION]
        for title, rows in (*commands, ("Options", options)):
            lines += ["", f"{title}:", *(f"  {name:{width}}{text}" for name, text in rows)]
        return "\n".join([*lines, "", f"`{ctx.command_path} COMMAND --help` shows the options of a command."])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; the error for an unknown name suggests the one that is meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as err:
            meant = _SYNONYMS.get(args[0]) or find_similar(args[0], COMMANDS)
            suggestion = f"; did you mean `{meant}`?" if meant else ""
            raise click.UsageError(f"unknown command `{args[0]}`{suggestion}", ctx) from err


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, message="kfjob %(version)s", help="Show the version.")
def kfjob() -> None:
    """Run distributed PyTorch training jobs on Kubernetes or on this machine."""


def run_and_flush(argv: list[str]) -> int:
    """Run the command line in this process, which then exits, and return the exit code."""
    _open_streams()
    code = run(argv)
    end_on_interrupt()
    code = _flush(code)
    gc.freeze()  # otherwise the interpreter visits all objects when it exits, which takes 20 ms
    return code


def _open_streams() -> None:
    """Let a stream that is not UTF-8 escape what it lacks. Writing to a closed stdout is an error; a closed stderr drops it."""
    for name, mode in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, mode), "w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush(code: int) -> int:
    """Write what is buffered for stdout; return the exit code, or another one if it cannot be written."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as err:
        return _report_lost_output(err)
    return code


def _report_lost_output(err: OSError) -> int:
    """Drop what is buffered for stdout and return the exit code. A closed pipe needs no message, as for other programs."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes stdout when it exits
    if isinstance(err, BrokenPipeError):
        return SIGNAL_BASE + signal.SIGPIPE
    cause = "standard output is closed" if err.errno == errno.EBADF else err.strerror or err
    with suppress(OSError):
        click.echo(f"error: the output cannot be written\n  cause: {cause}", err=True)
    return 1


def run(argv: list[str]) -> int:
    """Run the command line with clean output and return the exit code."""
    with clean_output(), reporting_waits(WaitPrinter()):
        return _run(argv)


def _run(argv: list[str]) -> int:
    """Run the command line and return the exit code. An error is printed; `--debug` shows its traceback."""
    debug = "--debug" in argv
    try:
        result: Any = kfjob.main(args=argv, prog_name="kfjob", standalone_mode=False, color=wants_colour())
    except KfjobError as err:
        if debug:
            raise
        print_error(err, argv)
        return err.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as err:
        return print_usage_error(err, argv)
    except LostOutput as err:
        return _report_lost_output(err.error)
    except Exception as err:  # such as that of a Condition that waited at the signal: it then releases its lock twice
        if (code := find_interrupt(err)) is None:
            raise
        return code
    return result if isinstance(result, int) else 0
