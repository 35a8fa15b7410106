"""Names that kfjob and the operator derive from a job's name, and the rules for them.

The names are the operator's (v1.9.3, pkg/core/pod.go `GenGeneralName`: `<job>-<type>-<index>`, lower case). A pod and its
headless service share a name. A service name is a DNS-1035 label: at most 63 characters, with a letter at the start.
"""

from __future__ import annotations

import re

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
DNS_1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
MAX_LABEL = 63
"""Characters of a label's value, and of a part of a host name (DNS-1123)."""
MAX_NAME = 253
"""Characters of an object's name (DNS-1123 subdomain)."""
MAX_PATH_BYTES = 4096 - 1 - 256
"""Size of a path; Linux accepts 4096 bytes with their final zero (limits.h), and files inside a folder need some of them."""
MAX_PATH_PART_BYTES = 255
"""Size of a file's name (Linux, limits.h)."""

SHARED_MEMORY_VOLUME = "kfjob-shared-memory"
TLS_VOLUME = "kfjob-etcd-tls"
EFA_CLAIM = "efa"
"""Name of the resource claim in a pod."""
RENDEZVOUS_PORT = 23456
"""The operator's default for the port named pytorchjob-port (v1.9.3, pytorch_defaults.go)."""
RENDEZVOUS_PORT_NAME = "pytorchjob-port"
"""The operator reads the Master's port from the container port of this name (v1.9.3, pytorch_types.go)."""
ETCD_PORT = 2379
PULL_SECRET_PREFIX = "kfjob-pull-"  # noqa: S105 - a name


def pod_name(job: str, replica_type: str, index: int) -> str:
    """Return the name of one replica's pod and service, such as `llama-worker-3`."""
    return f"{job}-{replica_type.lower()}-{index}"


def pod_names(job: str, nodes: int, *, master: bool = False) -> tuple[str, ...]:
    """Return the names of a job's pods in the order of their node rank: the Master, if any, then the Workers by index."""
    masters = (pod_name(job, "master", 0),) if master else ()
    return masters + tuple(pod_name(job, "worker", index) for index in range(nodes - len(masters)))


def etcd_name(job: str) -> str:
    """Return the name of the pod and the service of a job's own etcd."""
    return f"{job}-etcd"


def pull_secret_name(registry: str) -> str:
    """Return the name of the pull secret that kfjob keeps for a registry: one for all jobs of a namespace."""
    return f"{PULL_SECRET_PREFIX}{re.sub(r'[^a-z0-9.-]+', '-', registry.lower()).strip('-')}"


def find_longest_name(job: str, nodes: int, *, own_etcd: bool) -> str:
    """Return the longest service name that a job needs."""
    names = [pod_name(job, "worker", max(nodes - 1, 0))]
    if own_etcd:
        names.append(etcd_name(job))
    return max(names, key=len)


def find_path_problem(path: str) -> str | None:
    """Return why Linux cannot create a folder of this name and files inside it; None if it can."""
    if "\0" in path:
        return "it contains a zero byte"
    if (size := len(path.encode())) > MAX_PATH_BYTES:
        return f"it has {size} bytes, the limit is {MAX_PATH_BYTES}"
    longest = max((len(part.encode()) for part in path.split("/")), default=0)
    return f"a part of it has {longest} bytes, the limit is {MAX_PATH_PART_BYTES}" if longest > MAX_PATH_PART_BYTES else None


def find_dns_1035_problem(name: str) -> str | None:
    """Return why a name is not a DNS-1035 label, which the operator's webhook requires; None if it is one."""
    if not name:
        return "it is empty"
    if len(name) > MAX_LABEL:
        return f"it has {len(name)} characters, the limit is {MAX_LABEL}"
    if DNS_1035.fullmatch(name):
        return None
    reasons = []
    if not name[0].isascii() or not name[0].islower():
        reasons.append("it must begin with a lower-case letter")
    if name[-1] == "-":
        reasons.append("it must not end with `-`")
    if invalid := sorted({character for character in name[bool(reasons) :] if not re.fullmatch(r"[-a-z0-9]", character)}):
        shown = " ".join(f"`{character}`" for character in invalid)
        reasons.append(f"it may contain lower-case letters, digits and `-`, not {shown}")
    return "; ".join(reasons)


def is_dns_label(name: str) -> bool:
    """Return whether a text can be the name of a namespace, a volume, a port or a container."""
    return len(name) <= MAX_LABEL and DNS_1123.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a text can be the value of a label; it may be empty."""
    return not text or (len(text) <= MAX_LABEL and LABEL_VALUE.fullmatch(text) is not None)


def is_qualified(key: str) -> bool:
    """Return whether a text can be the key of a label, of an annotation or of a taint: `team`, `example.com/team`."""
    prefix, slash, name = key.rpartition("/")
    is_valid_name = name != "" and is_label_value(name)
    return is_valid_name and (not slash or (DNS_1123_SUBDOMAIN.fullmatch(prefix) is not None and len(prefix) <= MAX_NAME))
