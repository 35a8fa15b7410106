"""Every name that is derived from a job's name, the keys we write, and the rules they must meet.

The names are the operator's (v1.9.3, pkg/core/pod.go `GenGeneralName`: `<job>-<type>-<index>`, lower case), for pods and for
the headless service that each pod has. A service name is a DNS-1035 label: at most 63 characters, beginning with a letter.
"""

from __future__ import annotations

import re

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
MAX_LABEL = 63
MAX_NAME = 253
MAX_PATH = 4096 - 1 - 256
"""Linux takes paths of 4096 bytes with the zero at their end (limits.h); what is made in a folder needs some of them."""
MAX_PATH_PART = 255

SHARED_MEMORY_VOLUME = "kfjob-shared-memory"
TLS_VOLUME = "kfjob-etcd-tls"
ETCD_WAIT = "wait-for-etcd"
RENDEZVOUS_PORT = 23456
"""The operator's default for the port named pytorchjob-port (operator v1.9.3, pytorch_defaults.go)."""
RENDEZVOUS_PORT_NAME = "pytorchjob-port"
"""The operator reads the Master's port from the container port of this name (v1.9.3, pytorch_types.go)."""
ETCD_PORT = 2379


def pod_name(job: str, replica_type: str, index: int) -> str:
    """The pod, and the service, of one replica: `llama-worker-3`."""
    return f"{job}-{replica_type.lower()}-{index}"


def pod_names(job: str, nodes: int, *, master: bool = False) -> tuple[str, ...]:
    """The pods of a job in the order of their node rank: a master, if there is one, and then the workers by their index."""
    first = (pod_name(job, "master", 0),) if master else ()
    return first + tuple(pod_name(job, "worker", index) for index in range(nodes - len(first)))


def etcd_name(job: str) -> str:
    """The pod and the service of a job's own etcd."""
    return f"{job}-etcd"


PULL_SECRET_PREFIX = "kfjob-pull-"  # noqa: S105 - a name


def pull_secret_name(registry: str) -> str:
    """The pull secret that kfjob keeps for a registry: one in each namespace, for all jobs there."""
    return f"{PULL_SECRET_PREFIX}{re.sub(r'[^a-z0-9.-]+', '-', registry.lower()).strip('-')}"


def find_longest_name(job: str, nodes: int, *, own_etcd: bool) -> str:
    """The longest name that Kubernetes will be asked to take for this job."""
    names = [pod_name(job, "worker", max(nodes - 1, 0))]
    if own_etcd:
        names.append(etcd_name(job))
    return max(names, key=len)


def find_path_problem(path: str) -> str | None:
    """What keeps a folder of this name, and files in it, from being made on Linux; None if nothing does."""
    if "\0" in path:
        return "it holds a zero byte"
    if (size := len(path.encode())) > MAX_PATH:
        return f"it has {size} bytes, and {MAX_PATH} leave room for the names below it"
    longest = max((len(part.encode()) for part in path.split("/")), default=0)
    return f"a part of it has {longest} bytes, the limit is {MAX_PATH_PART}" if longest > MAX_PATH_PART else None


def find_dns_1035_problem(name: str) -> str | None:
    """What keeps `name` from being a DNS-1035 label (the operator's webhook asks for one), or None."""
    if not name:
        return "it is empty"
    if len(name) > MAX_LABEL:
        return f"it has {len(name)} characters, the limit is {MAX_LABEL}"
    if DNS_1035.fullmatch(name):
        return None
    if not name[0].isascii() or not name[0].islower():
        return "it must begin with a lower-case letter"
    if name[-1] == "-":
        return "it must not end with `-`"
    bad = sorted({c for c in name if not re.fullmatch(r"[-a-z0-9]", c)})
    return f"it may hold lower-case letters, digits and `-`, not {' '.join(f'`{c}`' for c in bad)}"
