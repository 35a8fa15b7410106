"""The pod that an address in an agent's log belongs to.

torch prints `socket.getfqdn()`: the first name in /etc/hosts, the fully qualified name, or the name that the address resolves
to; or the value of `--local-addr`. On the host network that is the name or the address of the node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kfjob.joblog.pods.state import PodView

IPV4_PARTS = 4
_LOOPBACK = {"localhost", "localhost.localdomain", "127.0.0.1", "::1", "0.0.0.0", "ip6-localhost"}  # noqa: S104 - only compared


def find_address_owner(
    address: str, pods: Mapping[str, PodView], expected: Sequence[str] = (), *, own: str | None = None
) -> str | None:
    """Return the name of the pod with this address, None if no pod of the job has it.

    `expected` adds names of pods that have not been seen yet; `own` is the pod that printed the address.
    """
    address = address.strip("[]").rstrip(".").lower()
    names = {*pods, *expected}
    if address in _LOOPBACK:
        # a loopback address means the pod itself, unless a pod has it as its address (local pods do)
        return _find_by_state(address, pods) or own
    if address in names:
        return address
    labels = address.split(".")
    if not _is_ipv4(labels):
        # fsdp-worker-1.fsdp-worker-1.default.svc…, fsdp-worker-1.default.svc…; 10-0-0-7.fsdp-worker-1.default.svc…
        for label in labels[:2]:
            if label in names:
                return label
        dashed = labels[0].split("-")
        if len(labels) > 1 and _is_ipv4(dashed):
            return _find_by_state(".".join(dashed), pods)
    return _find_by_state(address, pods)


def _is_ipv4(parts: Sequence[str]) -> bool:
    return len(parts) == IPV4_PARTS and all(part.isdecimal() for part in parts)


def _find_by_state(address: str, pods: Mapping[str, PodView]) -> str | None:
    """Return the pod with this IP, else the pod on the node with this address if that node runs one pod of the job."""
    owners = [pod.name for pod in pods.values() if pod.state and pod.state.ip == address]
    if not owners:
        owners = [
            pod.name
            for pod in pods.values()
            if pod.state
            and (pod.state.host_ip == address or (pod.node and pod.node.lower() in {address, address.partition(".")[0]}))
        ] or [pod.name for pod in pods.values() if pod.node and pod.node.lower().partition(".")[0] == address]
    return owners[0] if len(owners) == 1 else None
