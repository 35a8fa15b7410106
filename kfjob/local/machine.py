"""What this machine has (cores, GPUs, loopback addresses, free ports, programs), and whether a job fits on it."""

from __future__ import annotations

import ipaddress
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.base.errors import BackendError, Refused
from kfjob.base.text import plural
from kfjob.local.volume_mounts import locate

if TYPE_CHECKING:  # reading a job needs no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan

PROCESSES_PER_CORE = 16
"""Limit of training processes per core: the imports of each take more than a second of a core, so more never finish."""

_DROPPED_VARIABLES = re.compile(
    r"(PET|TORCHELASTIC)_.*|KFJOB_LOCAL_POD|MASTER_(ADDR|PORT)|NODE_RANK|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|ROLE_NAME|KFJOB_NOTIFY"
)
_UNRESERVED_PORTS = range(20_000, 32_768)
"""Below the ports of outgoing connections (Linux from 32768, macOS from 49152), so no connection takes one by chance."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for agents: without variables of an enclosing elastic agent and without the guard's addresses."""
    return {name: value for name, value in environ.items() if not _DROPPED_VARIABLES.fullmatch(name)}


def is_in_volume(plan: JobPlan, path: str) -> bool:
    """Return whether a path in the pod is in a volume, which is another folder on this machine."""
    return any(f"{path}/".startswith(f"{volume.mount_path.rstrip('/')}/") for volume in plan.volumes)


def check_start_folder(plan: JobPlan) -> None:
    """Check that the folder where agents start exists.

    Raises:
        Refused: it does not exist.
    """
    if (path := plan.spec.pod.working_dir) and not Path(path).is_dir():
        raise Refused(
            f"folder `{path}` is not on this machine",
            cause="`pod.working_dir` names it, and agents start there",
            hint="check `pod.working_dir`, or run with `--backend kubernetes`",
        )
    if not path and not Path(plan.start_folder).is_dir():
        raise Refused(
            f"folder `{plan.start_folder}` does not exist",
            cause=f"job `{plan.name}` was submitted there, and starts there again",
            hint="`kfjob submit` starts the job in the current folder; or set `pod.working_dir`",
        )


def check_script(argv: Sequence[str], *, folder: str, mounts: Mapping[str, str]) -> None:
    """Check that the script of a command line exists. A relative path is relative to `folder`, where agents start.

    `mounts` are folders that agents have at other paths (path -> folder).

    Raises:
        Refused: it does not exist.
    """
    from kfjob.plan.job_scripts import find_job_script

    script = find_job_script(argv, at_start=True)
    if not script or locate(Path(folder, script), mounts).exists():
        return
    raise Refused(
        f"script `{script}` does not exist",
        cause=None if Path(script).is_absolute() else f"the job would start in `{folder}`",
        hint="write an absolute path in the command, or set `pod.working_dir`: the path is relative to it",
    )


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def gpus() -> tuple[str, ...]:
    """Return the GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return tuple(gpu for gpu in visible.split(",") if gpu.strip() and gpu.strip() != "-1")
    if tool := shutil.which("nvidia-smi"):
        with suppress(subprocess.TimeoutExpired):  # the driver hangs: count the device files instead
            output = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30, check=False).stdout
            return tuple(str(index) for index in range(len(re.findall(r"^GPU \d+:", output, re.MULTILINE))))
    names = [entry.name for entry in Path("/dev").iterdir()]
    return tuple(str(index) for index in range(sum(bool(re.fullmatch(r"nvidia\d+", name)) for name in names)))


def processes(processes_per_node: str) -> int:
    """Return how many processes an agent starts; `auto`, `gpu` and `cpu` count as in torch (torch distributed/run.py)."""
    if processes_per_node.isdecimal():
        return int(processes_per_node)
    if processes_per_node == "cpu":
        return os.cpu_count() or 1
    return len(gpus()) or (os.cpu_count() or 1)


def check_capacity(plan: JobPlan) -> None:
    """Check that this machine has enough GPUs and cores for the job.

    Raises:
        Refused: the job needs more; the error names both numbers.
    """
    required = sum(plan.get_role(index).resources.gpus for index in range(plan.spec.nodes))
    if required and required > (available := len(gpus())):
        raise Refused(
            f"job `{plan.name}` needs {plural(required, 'GPU')}, this machine has {available}",
            cause=" and ".join(_count_gpus(plan)),
            hint="lower `nodes` or `resources.gpus`, or run with `--backend kubernetes`",
        )
    per_node = processes(plan.processes_per_node)
    total, limit = plan.spec.nodes * per_node, PROCESSES_PER_CORE * cores()
    if total > limit:
        raise Refused(
            f"job `{plan.name}` needs {total} processes, this machine has {plural(cores(), 'core')} and runs at most {limit}",
            cause=f"{plural(plan.spec.nodes, 'node')} with {plural(per_node, 'process', 'processes')} each",
            hint="lower `nodes` or `processes_per_node`, or run with `--backend kubernetes`",
        )


def _count_gpus(plan: JobPlan) -> Iterator[str]:
    if plan.master:
        yield f"the Master with {plural(plan.master.resources.gpus, 'GPU')}"
    yield f"{plural(plan.spec.nodes - bool(plan.master), 'node')} with {plural(plan.resources.gpus, 'GPU')} each"


def loopback_addresses(count: int) -> tuple[str, ...]:
    """Return an address per agent: 127.0.0.2, 127.0.0.3 …; 127.0.0.1 for all where the system has no other (macOS)."""
    first = ipaddress.IPv4Address("127.0.0.2")
    addresses = tuple(str(first + index) for index in range(count))
    return addresses if all(_is_free(address, 0) for address in (addresses[0], addresses[-1])) else ("127.0.0.1",) * count


def loopback_interface() -> str:
    """Return the name of the loopback interface, usually `lo`."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def free_port() -> int:
    """Return a free TCP port that no outgoing connection uses.

    Raises:
        BackendError: 100 random ports were in use.
    """
    for port in random.SystemRandom().sample(_UNRESERVED_PORTS, 100):  # the program may have set the seed of `random`
        if _is_free("", port):
            return port
    raise BackendError(
        "no free TCP port was found on this machine",
        cause=f"100 ports between {_UNRESERVED_PORTS.start} and {_UNRESERVED_PORTS.stop} are in use",
    )


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
