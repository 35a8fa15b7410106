"""Plan a job's own etcd on this machine: the `etcd` on PATH, with the v2 API that torch's etcd backends use."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.backends import folder
from kfjob.base.errors import Refused
from kfjob.local import machine
from kfjob.local.launch_spec import EtcdSpec
from kfjob.objects import names

if TYPE_CHECKING:  # reading a job needs no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan

_INSTALL = (
    "`apt-get update && apt-get install etcd-server` installs one on Debian and Ubuntu; or set `rendezvous.endpoint`, or "
    "`rendezvous: c10d`"
)


def etcd_spec(plan: JobPlan, launch: Path) -> EtcdSpec:
    """Return how to start the etcd of this launch.

    Raises:
        Refused: no `etcd` is on PATH, or torch cannot use its version.
    """
    program = _find_program()
    port, peer_port = machine.free_port(), machine.free_port()
    name = names.etcd_name(plan.name)
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    options = {
        "name": name,
        "data-dir": str(launch / folder.RUN / "etcd"),
        "enable-v2": "true",
        "listen-client-urls": client_url,
        "advertise-client-urls": client_url,
        "listen-peer-urls": peer_url,
        "initial-advertise-peer-urls": peer_url,
        "initial-cluster": f"{name}={peer_url}",
    }
    return EtcdSpec(pod=name, argv=(program, *(f"--{key}={value}" for key, value in options.items())), port=port)


def _find_program() -> str:
    program = shutil.which("etcd")
    if program is None:
        raise Refused("the job needs its own etcd, and PATH has no program `etcd`", hint=_INSTALL)
    output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    match = re.search(r"^etcd Version: (\d+)\.(\d+)", output, re.MULTILINE)
    if not match:
        raise Refused(f"`{program} --version` does not name the version of etcd", cause=output.strip() or None, hint=_INSTALL)
    version = int(match[1]), int(match[2])
    if version not in {(3, 4), (3, 5)}:
        raise Refused(
            f"`{program}` is etcd {match[1]}.{match[2]}, and torch needs 3.4 or 3.5",
            cause="torch's etcd backends speak the v2 API, which etcd 3.6 has removed",
            hint=_INSTALL,
        )
    return program
