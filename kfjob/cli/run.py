"""The command `run`: a job from a command line, without a spec file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfjob.api.specs.command import JobCommand
from kfjob.cli.completion import FILE
from kfjob.cli.options import (
    Settings,
    code_options,
    collect_options,
    notify,
    output_option,
    python_option,
    quiet_option,
    target_options,
)
from kfjob.cli.output import hide_secrets, rewrite_messages, write_data
from kfjob.cli.parameter_types import POSITIVE, WHOLE
from kfjob.cli.submit import submit_and_follow

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.source.spec_text import LoadedSpec

_OPTIONS_FIRST = {"allow_interspersed_args": False}  # later options belong to the program

_command_options = collect_options(
    "command",
    JobCommand,
    click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="COMMAND..."),
    click.option("--nodes", type=POSITIVE, metavar="N", help="Number of nodes. Default: that of the command, else 1."),
    click.option(
        "--processes-per-node", metavar="N", help="Processes on each node: a number, or `auto`. Default: one per GPU, else 1."
    ),
    click.option(
        "--gpus",
        type=WHOLE,
        metavar="N",
        help="GPUs of each node. Default: one for each process that the command names.",
    ),
    click.option("--cpu", metavar="N", help="CPU cores of each node, for example `8` or `500m`."),
    click.option("--memory", metavar="SIZE", help="Memory of each node, for example `64Gi`."),
    click.option("--image", metavar="IMAGE", help="Container image; a cluster needs one, this machine none."),
    click.option("-e", "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable. Repeatable."),
    click.option(
        "-v",
        "--volume",
        "volumes",
        multiple=True,
        metavar="CLAIM:/PATH[:ro]",
        help="Mount a PersistentVolumeClaim, or with /FOLDER:/PATH a folder of each node. Repeatable.",
    ),
    click.option("--name", metavar="NAME", help="Name of the job. Default: that of the script."),
    click.option("--set", "assignments", multiple=True, metavar="FIELD=VALUE", help="Set any field of the spec. Repeatable."),
)


@click.command(context_settings=_OPTIONS_FIRST, options_metavar="[OPTIONS] --")
@_command_options
@click.option("-d", "--detach", is_flag=True, help="Return after the submit instead of following the job.")
@quiet_option
@click.option("--save", metavar="FILE", type=FILE, help="Write the job's spec to FILE (`-`: print it), and start nothing.")
@output_option("name", "json")
@target_options
@python_option
@code_options
def run(
    *,
    command: JobCommand,
    detach: bool,
    quiet: bool,
    save: str | None,
    output: str,
    code: CodeLayer | None,
    settings: Settings,
) -> int:
    """Run a command as a job, and follow it. No spec file is needed.

    COMMAND is what you type without kfjob: `torchrun train.py --epochs 3`, `python train.py`, `accelerate launch …` or
    `deepspeed …`. Options of kfjob come before it; `--` may separate them. What torchrun's own options say about nodes,
    processes, restarts and rendezvous holds for the job.

    The job has the name of the script. Your job of this name that has ended goes to the archive first; one that runs is
    not touched. Ctrl-C detaches; the job continues. The exit code is that of `kfjob wait`.

    \b
    kfjob run -- torchrun train.py --epochs 3
    kfjob run --nodes 2 --gpus 8 --image IMAGE --code . -- torchrun train.py
    kfjob run --save job.yaml -- torchrun train.py
    """  # noqa: D301 - \b marks a block that click does not rewrap
    from kfjob.api.spec_source import SpecSource
    from kfjob.api.specs.command import name_options
    from kfjob.api.target import find_target

    rewrite_messages(name_options)
    target = find_target(settings, notify=notify)
    loaded = command.read(target, hide=hide_secrets, notify=notify)
    rewrite_messages(partial(name_options, job=loaded.spec.name))
    if save:
        _save(save, loaded, with_code=code is not None)
        return 0
    return submit_and_follow(SpecSource(loaded), target, code=code, output=output, should_follow=not detach, quiet=quiet)


def _save(file: str, loaded: LoadedSpec, *, with_code: bool) -> None:
    from kfjob.api.specs.command import format_spec, save_spec

    if file == "-":
        write_data(format_spec(loaded, "job.yaml"))
        return
    save_spec(Path(file), loaded)
    click.echo(file)
    code = " --code DIR" if with_code else ""
    click.echo(f"wrote the spec of `{loaded.spec.name}`; `kfjob submit {file}{code} --follow` runs it", err=True)
