"""The command line of one node: what the launcher is told that it does not read from the environment.

`$(NAME)` is put in by the kubelet, or by the local backend: a variable that the operator sets in each pod. torchrun and
torch.distributed.launch read PET_* variables and need no words of ours.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import takewhile

from kfjob.errors import Problem
from kfjob.spec.arguments import to_argv
from kfjob.spec.job import JobSpec
from kfjob.spec.rendezvous import Launcher

_OWN_WORDS: dict[Launcher, tuple[tuple[str, ...], ...]] = {
    "torchrun": (("torchrun",), ("python", "-m", "torch.distributed.run"), ("python3", "-m", "torch.distributed.run")),
    "launch": (("python", "-m", "torch.distributed.launch"), ("python3", "-m", "torch.distributed.launch")),
    "deepspeed": (("deepspeed",),),
    "accelerate": (("accelerate", "launch"),),
    "python": (("python",), ("python3",)),
}
_WAYS = frozenset({"--cpu", "--multi_gpu", "--tpu", "--use_deepspeed", "--use_fsdp"})
"""`accelerate launch` takes one of them at most (accelerate 1.15, commands/launch.py `_validate_launch_command`)."""
_NEEDS_NUMBER = ("deepspeed", "accelerate")

AUTHENTICATED = """
import os, sys, etcd
begin = etcd.Client.__init__
def authenticated(self, *args, **kwargs):
    begin(self, *args, **(kwargs | {"username": os.environ["KFJOB_ETCD_USER"], "password": os.environ["KFJOB_ETCD_PASSWORD"]}))
etcd.Client.__init__ = authenticated
from torch.distributed.run import main
main(sys.argv[1:])
""".strip()
"""torchrun for an etcd that asks for a user: torch hands none to its client (etcd_rendezvous.py and …_backend.py)."""


def command(spec: JobSpec, launcher: Launcher, processes: str) -> tuple[str, ...]:
    """What the training container runs."""
    if spec.launcher is None and spec.command:
        words = spec.command
    else:
        words = (*_launcher(spec, launcher, processes), *_program(spec, launcher))
    return _authenticated(words) if spec.rendezvous.user else words


def problems(spec: JobSpec, processes: str) -> Iterator[Problem]:
    """What keeps the launcher from being told all that it needs."""
    if spec.launcher in _NEEDS_NUMBER and not processes.isdecimal():
        title = f"launcher `{spec.launcher}` must be told the number of processes, and `{processes}` is none"
        yield Problem(title=title, path="processes_per_node", hint="write the number, or use `launcher: torchrun`")
    starts = spec.command[:1] if spec.command and spec.launcher is None else ("torchrun",)
    if spec.rendezvous.user and starts != ("torchrun",):
        title = "torchrun itself cannot log in to an etcd, and this command hides it from kfjob, which can help it"
        yield Problem(
            title=title, path="rendezvous.user", hint="let `command` begin with `torchrun`, or say `launcher: torchrun`"
        )


def _program(spec: JobSpec, launcher: Launcher) -> tuple[str, ...]:
    """The program and its arguments, without the words that start a launcher."""
    if spec.train is not None:
        module = ("kfjob.trainer",) if launcher == "deepspeed" else ("-m", "kfjob.trainer")
        return (*module, *to_argv(spec.train))
    words = spec.command or ()
    own = max((len(own) for own in _OWN_WORDS[launcher] if words[: len(own)] == own), default=0)
    return words[own:]


def _launcher(spec: JobSpec, launcher: Launcher, processes: str) -> tuple[str, ...]:
    if launcher == "torchrun":
        return ("torchrun",)
    if launcher == "launch":
        return ("python3", "-m", "torch.distributed.launch", "--use-env")
    if launcher == "python":
        return ("python3",)
    if launcher == "accelerate":
        return ("accelerate", "launch", *_accelerate(spec, processes))
    return ("python3", "-m", "deepspeed.launcher.launch", *_deepspeed(spec, processes))


def _accelerate(spec: JobSpec, processes: str) -> Iterator[str]:
    count = spec.nodes * int(processes or 1)
    options = takewhile(lambda word: word.startswith("--"), _program(spec, "accelerate"))
    if count > 1 and _WAYS.isdisjoint(options):
        yield "--multi_gpu"  # its name for several processes started by torch's own launcher, also without GPUs
    yield f"--num_machines={spec.nodes}"
    yield f"--num_processes={count}"
    yield "--machine_rank=$(RANK)"
    yield "--main_process_ip=$(MASTER_ADDR)"
    yield "--main_process_port=$(MASTER_PORT)"
    yield "--rdzv_backend=static"


def _deepspeed(spec: JobSpec, processes: str) -> Iterator[str]:
    """What the `deepspeed` command runs on every node by ssh (deepspeed launcher/runner.py): pods have no ssh."""
    world = {f"node-{rank}": list(range(int(processes))) for rank in range(spec.nodes)}
    encoded = base64.urlsafe_b64encode(json.dumps(world, separators=(",", ":")).encode()).decode()
    yield f"--world_info={encoded}"
    yield "--node_rank=$(RANK)"
    yield "--master_addr=$(MASTER_ADDR)"
    yield "--master_port=$(MASTER_PORT)"
    if spec.train is not None:
        yield "--module"


def _authenticated(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("python3", "-c", AUTHENTICATED, *words[1:])
