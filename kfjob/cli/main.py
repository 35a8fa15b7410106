"""The command line. Commands are imported when they are called, so that `kfjob --help` costs a bare interpreter and click."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from kfjob.errors import KfjobError

INTERRUPTED = 130
OBJECTS = 50_000
"""New objects after which Python looks for garbage: with its own 700, 60 times while modules are imported, in vain."""

COMMANDS = {
    "init": ("kfjob.cli.init", "Write a first spec."),
    "submit": ("kfjob.cli.submit", "Start a job, here or on a cluster."),
    "push-image": ("kfjob.cli.push_image", "Build an image, push it, and pin its digest in a spec."),
    "apply": ("kfjob.cli.submit", "Change a live job where that is possible in place."),
    "render": ("kfjob.cli.submit", "Print the objects that submit would create."),
    "validate": ("kfjob.cli.submit", "Check a spec and name every problem."),
    "explain": ("kfjob.cli.spec_commands", "Show every value of a job, where it comes from, and why."),
    "diff": ("kfjob.cli.spec_commands", "Show what a spec would change at the live job."),
    "list": ("kfjob.cli.status", "List the jobs of a namespace."),
    "status": ("kfjob.cli.status", "Show a job, its pods, its progress and its master."),
    "logs": ("kfjob.cli.logs", "Print the logs of a job's pods."),
    "master": ("kfjob.cli.master", "Name the pod that prints the training progress."),
    "diagnose": ("kfjob.cli.diagnose", "Say what went wrong first, and what to do about it."),
    "report": ("kfjob.cli.report", "Write a job's report: curves, timeline, diagnosis, in one HTML file."),
    "watch": ("kfjob.cli.follow", "Follow a job: progress, pods and what happens to it."),
    "wait": ("kfjob.cli.follow", "Wait until a job has ended; the exit code tells how."),
    "stop": ("kfjob.cli.lifecycle", "End a job and free its name; its logs are archived first."),
    "relaunch": ("kfjob.cli.lifecycle", "Stop a job and submit its recorded spec anew."),
    "import": ("kfjob.cli.convert", "Make a spec of a PyTorchJob, an Accelerate config or a torchrun command."),
    "export": ("kfjob.cli.convert", "Make another tool's file of a spec."),
    "doctor": ("kfjob.cli.doctor", "Say what is missing here and in the cluster, and what mends it."),
    "preflight": ("kfjob.cli.preflight", "Check all that a job needs before it starts; --run tries the network."),
    "instances": ("kfjob.cli.spec_commands", "List the instance types that are known."),
    "schema": ("kfjob.cli.spec_commands", "Print the JSON Schema of a spec, for editors."),
}
_FUNCTIONS = {"list": "list_jobs", "import": "import_spec", "export": "export_spec", "push-image": "push_image"}
"""The functions of the commands whose name means something else in Python, or too little."""


class LazyGroup(click.Group):
    """A group that knows the names and help lines of its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """In the order in which a job needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command's module, and only that."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, _FUNCTIONS.get(cmd_name, cmd_name))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """From the table above."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """With a suggestion for a name that is nearly right."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as err:
            import difflib

            if close := difflib.get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"no such command `{args[0]}`; did you mean `{close[0]}`?", ctx) from err
            raise


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="kfjob", message="%(prog)s %(version)s")
def kfjob() -> None:
    """From a job spec to a loss curve, on a Kubernetes cluster or on this machine.

    \b
    kfjob submit job.yaml --follow     start a job and watch its progress
    kfjob master JOB                   which pod prints it, and how we know
    kfjob stop JOB                     before a relaunch, a Completed job too
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit with its code; ended by a signal, it leaves nothing behind that it has lent."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, _end)
    gc.set_threshold(OBJECTS)
    code = run(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # or the interpreter goes through all objects at its end: 20 ms
    sys.exit(code)


def _end(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # once is enough
    sys.exit(128 + number)


def run(argv: list[str]) -> int:
    """Run the command line; the exit code. Errors a user can cause end in a message, with `--debug` in a traceback."""
    debug = "--debug" in argv
    try:
        result: Any = kfjob.main(args=argv, prog_name="kfjob", standalone_mode=False)
    except KfjobError as err:
        if debug:
            raise
        click.echo(str(err), err=True)
        return err.exit_code
    except (click.exceptions.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as err:
        _show_usage(err)
        return err.exit_code
    except RuntimeError as err:
        if not isinstance(err.__context__, KeyboardInterrupt):
            raise
        return INTERRUPTED  # while threads were waited for: a Condition so interrupted can release its lock twice
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        return 1
    return result if isinstance(result, int) else 0


def _show_usage(err: click.ClickException) -> None:
    click.echo(f"error: {err.format_message()}", err=True)
    ctx = getattr(err, "ctx", None)
    if ctx is not None:
        click.echo(f"hint: {ctx.get_usage().replace('Usage: ', '')}", err=True)
