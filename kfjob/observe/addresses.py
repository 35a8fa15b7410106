"""From an address that an agent prints to the pod it belongs to.

torch takes `socket.getfqdn()`: the first name of /etc/hosts, the fully qualified name, or what the address resolves back to; or
the `--local-addr` it was given. On the host network that is the node's name or address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kfjob.observe.pods import PodView

IPV4_PARTS = 4
_OWN = {"localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0", "ip6-localhost"}  # noqa: S104 - names, not bound to


def find_address_owner(
    address: str, pods: Mapping[str, PodView], expected: Sequence[str] = (), *, own: str | None = None
) -> str | None:
    """The pod with this address, None if no pod of the job has it. `own`: the pod that printed it."""
    address = address.strip("[]").rstrip(".").lower()
    names = {*pods, *expected}
    if address in _OWN:
        # a loopback address is a pod's own, unless it was given to a pod (each local "pod" has one)
        return _by_state(address, pods) or own
    if address in names:
        return address
    labels = address.split(".")
    if not _numeric(labels):
        # fsdp-worker-1.fsdp-worker-1.default.svc…, fsdp-worker-1.default.svc…; 10-0-0-7.fsdp-worker-1.default.svc…
        for label in labels[:2]:
            if label in names:
                return label
        dashed = labels[0].split("-")
        if len(labels) > 1 and _numeric(dashed):
            return _by_state(".".join(dashed), pods)
    return _by_state(address, pods)


def _numeric(parts: Sequence[str]) -> bool:
    """Whether these are the four parts of an IPv4 address."""
    return len(parts) == IPV4_PARTS and all(part.isdecimal() for part in parts)


def _by_state(address: str, pods: Mapping[str, PodView]) -> str | None:
    """By the pods' own addresses; then by their nodes', which only tell where a node holds one pod of the job."""
    owners = [pod.name for pod in pods.values() if pod.state and pod.state.ip == address]
    if not owners:
        owners = [
            pod.name
            for pod in pods.values()
            if pod.state
            and (pod.state.host_ip == address or (pod.node and pod.node.lower() in {address, address.partition(".")[0]}))
        ] or [pod.name for pod in pods.values() if pod.node and pod.node.lower().partition(".")[0] == address]
    return owners[0] if len(owners) == 1 else None
