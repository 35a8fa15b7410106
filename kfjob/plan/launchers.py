"""The command line of one node: the program, and the launcher options that the environment does not set.

`$(NAME)` stands for a variable that the operator sets in each pod; the kubelet or the local backend replaces it. torchrun and
torch.distributed.launch read PET_* variables and need no options.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from kfjob.base.errors import Problem
from kfjob.shell.commands import DEEPSPEED_MODULE, Launcher, find_command_problems, is_python, split_program
from kfjob.spec.job import JobSpec
from kfjob.trainspec import OWN_TRAINER
from kfjob.trainspec.command_line import to_argv

_ACCELERATE_MODES = frozenset({"--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp"})
"""`accelerate launch` takes one of them at most (accelerate 1.15, commands/launch.py `_validate_launch_command`)."""
_NEEDS_NUMBER = ("deepspeed", "accelerate")

AUTHENTICATED_TORCHRUN = """
import os, sys, etcd
begin = etcd.Client.__init__
def authenticated(self, *args, **kwargs):
    begin(self, *args, **(kwargs | {"username": os.environ["KFJOB_ETCD_USER"], "password": os.environ["KFJOB_ETCD_PASSWORD"]}))
etcd.Client.__init__ = authenticated
from torch.distributed.run import main
main(sys.argv[1:])
""".strip()
"""torchrun for an etcd with authentication: torch passes no user to its client (etcd_rendezvous.py and …_backend.py)."""


def make_command(spec: JobSpec, launcher: Launcher, processes: str) -> tuple[str, ...]:
    """Return the command of the training container; () for the image's own entry point."""
    if spec.launcher is None and spec.train is None:
        words = spec.command or ()
    else:
        words = (*_launcher_command(spec, launcher, processes), *_program(spec, launcher))
    return _add_authentication(words) if spec.rendezvous.user else words


def find_problems(spec: JobSpec, processes: str) -> Iterator[Problem]:
    """Yield what the launcher needs and the spec does not give."""
    if spec.launcher in _NEEDS_NUMBER and not processes.isdecimal():
        title = f"launcher `{spec.launcher}` needs a number of processes, and `{processes}` is not a number"
        yield Problem(title=title, path="processes_per_node", hint="write the number, or use `launcher: torchrun`")
    if spec.launcher and spec.command:
        yield from find_command_problems(spec.command, spec.launcher)
    program = (spec.command or ())[:1] if spec.train is None and spec.launcher is None else ("torchrun",)
    if spec.rendezvous.user and program != ("torchrun",):
        title = "only a command that begins with `torchrun` can log in to an etcd"
        yield Problem(
            title=title, path="rendezvous.user", hint="let `command` begin with `torchrun`, or set `launcher: torchrun`"
        )


def _program(spec: JobSpec, launcher: Launcher) -> tuple[str, ...]:
    """Return the program and its arguments without the launcher."""
    if spec.train is not None:
        module = (OWN_TRAINER,) if launcher == "deepspeed" else ("-m", OWN_TRAINER)
        return (*module, *to_argv(spec.train))
    words = spec.command or ()
    if launcher == "python":
        return words[1:] if words and is_python(words[0]) else words
    program = split_program(words, launcher)
    options = tuple(word for word in program.options if launcher != "launch" or word.replace("_", "-") != "--use-env")
    if launcher == "deepspeed" and program.words[:1] == ("-m",):
        return (*options, "--module", *program.words[1:])
    return (*options, *program.words)


def _launcher_command(spec: JobSpec, launcher: Launcher, processes: str) -> tuple[str, ...]:
    if launcher == "torchrun":
        return ("torchrun",)
    if launcher == "launch":
        return ("python3", "-m", "torch.distributed.launch", "--use-env")
    if launcher == "python":
        first = spec.command[0] if spec.command else ""
        return (first if is_python(first) and first != "python" else "python3",)
    if launcher == "accelerate":
        return ("accelerate", "launch", *_accelerate_options(spec, processes))
    return ("python3", "-m", DEEPSPEED_MODULE, *_deepspeed_options(spec, processes))


def _accelerate_options(spec: JobSpec, processes: str) -> Iterator[str]:
    count = spec.nodes * int(processes or 1)
    options = split_program(spec.command or (), "accelerate").options
    if count > 1 and _ACCELERATE_MODES.isdisjoint(options):
        yield "--multi_gpu"  # accelerate's name for several processes that torch's launcher starts, also without GPUs
    yield f"--num_machines={spec.nodes}"
    yield f"--num_processes={count}"
    yield "--machine_rank=$(RANK)"
    yield "--main_process_ip=$(MASTER_ADDR)"
    yield "--main_process_port=$(MASTER_PORT)"
    yield "--rdzv_backend=static"


def _deepspeed_options(spec: JobSpec, processes: str) -> Iterator[str]:
    """Yield the options that the `deepspeed` command passes by ssh (deepspeed launcher/runner.py); pods have no ssh."""
    world = {f"node-{rank}": list(range(int(processes))) for rank in range(spec.nodes)}
    encoded = base64.urlsafe_b64encode(json.dumps(world, separators=(",", ":")).encode()).decode()
    yield f"--world_info={encoded}"
    yield "--node_rank=$(RANK)"
    yield "--master_addr=$(MASTER_ADDR)"
    yield "--master_port=$(MASTER_PORT)"
    if spec.train is not None:
        yield "--module"


def _add_authentication(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("python3", "-c", AUTHENTICATED_TORCHRUN, *words[1:])
