"""What this machine has: cores, GPUs, loopback addresses, free ports, programs. And what a job may not ask of it."""

from __future__ import annotations

import ipaddress
import os
import random
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from kfjob.errors import BackendError, Refused
from kfjob.plan import JobPlan
from kfjob.text import plural

PROCESSES_PER_CORE = 16
"""More training processes than this on a core never get through their imports: each takes over a second of a core for that."""

_NOT_PASSED_ON = re.compile(
    r"(PET|TORCHELASTIC)_.*|KFJOB_LOCAL_POD|MASTER_(ADDR|PORT)|NODE_RANK|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME"
)
_UNRESERVED_PORTS = range(20_000, 32_768)
"""Below what systems take for outgoing connections (Linux from 32768, macOS from 49152), so nobody gets one by chance."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """This machine's environment for agents: without what an elastic agent around us has set, our Python's programs first."""
    kept = {name: value for name, value in environ.items() if not _NOT_PASSED_ON.fullmatch(name)}
    return kept | {"PATH": search_path(kept.get("PATH", os.defpath))}


def search_path(path: str) -> str:
    """`path` with the folder of our own Python in front: its `torchrun` is the one that fits."""
    return os.pathsep.join(dict.fromkeys([str(Path(sys.executable).parent), *path.split(os.pathsep)]))


def program(word: str, path: str) -> str:
    """The file that a command's first word names.

    Raises:
        Refused: this machine has no such program.
    """
    if found := shutil.which(word, path=search_path(path)):
        return found
    raise Refused(
        f"there is no program `{word}` on this machine",
        cause="it is neither beside this Python nor on PATH" if "/" not in word else None,
        hint="install it, or run with `--backend kubernetes`",
    )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def gpus() -> tuple[str, ...]:
    """The GPUs that a process here may use, by what CUDA_VISIBLE_DEVICES calls them."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(gpu for gpu in chosen.split(",") if gpu.strip() and gpu.strip() != "-1")
    if tool := shutil.which("nvidia-smi"):
        with suppress(subprocess.TimeoutExpired):  # a driver in trouble: the devices are counted then
            listed = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False).stdout
            return tuple(str(index) for index in range(len(re.findall(r"^GPU \d+:", listed, re.MULTILINE))))
    names = [entry.name for entry in Path("/dev").iterdir()]
    return tuple(str(index) for index in range(sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in names)))


def processes(processes_per_node: str) -> int:
    """How many processes an agent will start, as torch counts `auto`, `gpu` and `cpu` (torch distributed/run.py)."""
    if processes_per_node.isdecimal():
        return int(processes_per_node)
    if processes_per_node == "cpu":
        return os.cpu_count() or 1
    return len(gpus()) or (os.cpu_count() or 1)


def check_capacity(plan: JobPlan) -> None:
    """See that this machine can hold the job.

    Raises:
        Refused: with what was asked for and what there is.
    """
    asked = plan.nodes * plan.resources.gpus
    if asked and asked > (there := len(gpus())):
        raise Refused(
            f"job `{plan.name}` needs {plural(asked, 'GPU')}, this machine has {there}",
            cause=f"{plural(plan.nodes, 'node')} with {plural(plan.resources.gpus, 'GPU')} each",
            hint="lower `nodes` or `resources.gpus`, or run with `--backend kubernetes`",
        )
    per_node = processes(plan.processes_per_node)
    total, most = plan.nodes * per_node, PROCESSES_PER_CORE * cores()
    if total > most:
        raise Refused(
            f"job `{plan.name}` needs {total} processes, this machine has {plural(cores(), 'core')} and runs at most {most}",
            cause=f"{plural(plan.nodes, 'node')} with {plural(per_node, 'process', 'processes')} each",
            hint="lower `nodes` or `processes_per_node`, or run with `--backend kubernetes`",
        )


def loopback_addresses(count: int) -> tuple[str, ...]:
    """An address for each agent: 127.0.0.2, 127.0.0.3 …, or 127.0.0.1 for all where the system has no other (macOS)."""
    first = ipaddress.IPv4Address("127.0.0.2")
    addresses = tuple(str(first + index) for index in range(count))
    return addresses if all(_is_free(address, 0) for address in (addresses[0], addresses[-1])) else ("127.0.0.1",) * count


def loopback_interface() -> str:
    """`lo`, or what the system calls it."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def free_port() -> int:
    """A TCP port that nothing on this machine listens on, and that no outgoing connection will be given.

    Raises:
        BackendError: a hundred of them were all taken.
    """
    for port in random.sample(_UNRESERVED_PORTS, 100):
        if _is_free("", port):
            return port
    raise BackendError("no free TCP port was found on this machine", cause=f"tried 100 of {_UNRESERVED_PORTS}")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
