"""A job's own etcd on this machine: the `etcd` on PATH, with the v2 API that torch's etcd backends speak."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from kfjob.backends import folder
from kfjob.backends.local import machine
from kfjob.backends.local.launch_spec import EtcdSpec
from kfjob.errors import Refused
from kfjob.plan import JobPlan
from kfjob.spec import names

_INSTALL = (
    "`apt-get install etcd-server` installs one on Debian and Ubuntu; or set `rendezvous.endpoint`, or `rendezvous: c10d`"
)


def etcd_spec(plan: JobPlan, launch: Path) -> EtcdSpec:
    """How to start the etcd of this launch.

    Raises:
        Refused: there is no etcd, or none that torch can use.
    """
    program = _find()
    port, peers = machine.free_port(), machine.free_port()
    name = names.etcd_name(plan.name)
    client_url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
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


def _find() -> str:
    program = shutil.which("etcd")
    if program is None:
        raise Refused("the job needs an etcd of its own, and there is no program `etcd` on PATH", hint=_INSTALL)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.search(r"^etcd Version: (\d+)\.(\d+)", said, re.MULTILINE)
    if not found:
        raise Refused(f"`{program} --version` does not say which etcd it is", cause=said.strip() or None, hint=_INSTALL)
    version = int(found[1]), int(found[2])
    if version not in {(3, 4), (3, 5)}:
        raise Refused(
            f"`{program}` is etcd {found[1]}.{found[2]}, and torch needs 3.4 or 3.5",
            cause="torch's etcd backends speak the v2 API, which etcd 3.6 has removed",
            hint=_INSTALL,
        )
    return program
