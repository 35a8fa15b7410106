"""JobPlan -> the environment and argv of one elastic agent.

On a cluster the operator adds the rendezvous to each pod's environment; on this machine we add the same variables ourselves,
so that the same command line runs in both places. A torchrun flag on the command line would beat these variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kfjob.plan import JobPlan
from kfjob.spec import names


def operator_environment(plan: JobPlan, index: int = 0) -> dict[str, str]:
    """What the operator adds to the pod of node rank `index`, after the plan's own variables, which it overrides.

    Mirrors operator v1.9.3, pkg/controller.v1/pytorch: envvar.go, master.go, elastic.go.
    """
    env = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": plan.processes_per_node}
    if plan.has_master:
        env |= _of_the_master(plan, index)
    if not plan.is_dynamic:
        return env | {"PET_NNODES": str(plan.nodes)}
    rendezvous = plan.rendezvous
    env |= {
        "PET_RDZV_ENDPOINT": f"{rendezvous.host}:{rendezvous.port}",
        "PET_RDZV_BACKEND": rendezvous.backend,
        "PET_NNODES": f"{plan.min_nodes}:{plan.max_nodes}",
        "PET_MAX_RESTARTS": str(plan.restarts.max),
        "PET_RDZV_ID": rendezvous.id,
    }
    if rendezvous.conf:
        env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in rendezvous.conf)
    return env


def _of_the_master(plan: JobPlan, index: int) -> dict[str, str]:
    processes = int(plan.processes_per_node) if plan.processes_per_node.isdecimal() else 1
    master = names.pod_name(plan.name, "master", 0)
    port = str(plan.rendezvous.port if not plan.rendezvous.backend.startswith("etcd") else names.RENDEZVOUS_PORT)
    return {
        "MASTER_ADDR": master,
        "PET_MASTER_ADDR": master,
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "WORLD_SIZE": str(plan.nodes * processes),
        "RANK": str(index),
        "PET_NODE_RANK": str(index),
    }


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the agents of a job stand on one machine."""

    addresses: tuple[str, ...]  # of each agent, loopback
    endpoint: str  # host:port of the rendezvous
    interface: str  # of the loopback addresses, for gloo
    folders: Mapping[str, str]  # mount path in the pod -> folder of this machine


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent as a process of this machine."""

    name: str  # of the pod that it stands for
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the machine's own


def local_agent(plan: JobPlan, index: int, placement: Placement) -> Agent:
    """The agent that stands for the pod of node rank `index`."""
    name = plan.pods[index]
    here = operator_environment(plan, index) | _place(plan, index, placement)
    fields = {key: _field(plan, index, source.field, placement) for key, source in plan.env_from if source.field}
    env = fields | dict(plan.env) | here
    env.setdefault("GLOO_SOCKET_IFNAME", placement.interface)
    env["HOSTNAME"] = name
    env = {key: _on_this_machine(_expanded(value, env), placement.folders) for key, value in env.items()}
    words = (_expanded(word, env) for word in plan.command)
    return Agent(name=name, argv=tuple(_on_this_machine(word, placement.folders) for word in words), env=env)


def _place(plan: JobPlan, index: int, placement: Placement) -> dict[str, str]:
    """What differs on this machine from what the operator would say: addresses and ports."""
    env = {"PET_LOCAL_ADDR": placement.addresses[index]}
    host, _, port = placement.endpoint.rpartition(":")
    if plan.is_dynamic:
        env["PET_RDZV_ENDPOINT"] = placement.endpoint
    if plan.has_master:
        own = {"MASTER_ADDR": placement.addresses[0], "MASTER_PORT": port if host == placement.addresses[0] else "29500"}
        env |= own | {f"PET_{key}": value for key, value in own.items()}
    if plan.rendezvous.backend == "c10d":  # every agent would find that a loopback endpoint is its own, and race for the store
        is_host = f"is_host={'true' if index == 0 else 'false'}"
        env["PET_RDZV_CONF"] = ",".join([*(f"{key}={value}" for key, value in plan.rendezvous.conf), is_host])
    return env


def _field(plan: JobPlan, index: int, field: str, placement: Placement) -> str:
    """What stands in a field of the pod that this agent stands for."""
    address = placement.addresses[index]
    known = {"metadata.name": plan.pods[index], "metadata.namespace": plan.namespace}
    return known.get(field, address if field.endswith("IP") else "")


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """`$(NAME)` replaced as the kubelet does: only by variables that are there, and `$$` is a dollar sign.

    Mirrors Kubernetes v1.34, third_party/forked/golang/expansion/expand.go.
    """
    return _REFERENCE.sub(lambda found: "$" if found[0] == "$$" else env.get(found[1], found[0]), text)


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def _on_this_machine(word: str, folders: Mapping[str, str]) -> str:
    """`word` with a pod's path replaced by the folder that stands for it: `/data/x`, `--flag=/data/x`."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for mount in sorted(folders, key=len, reverse=True):
        if value == mount or value.startswith(mount.rstrip("/") + "/"):
            return flag + equals + folders[mount] + value[len(mount) :]
    return word
