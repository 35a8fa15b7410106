"""JobPlan -> the environment and argv of one elastic agent.

On a cluster the operator adds the rendezvous to each pod's environment; on this machine we add the same variables ourselves,
so that the same command line runs in both places. A torchrun flag on the command line would beat these variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kfjob.plan import JobPlan
from kfjob.spec import names


def operator_environment(plan: JobPlan) -> dict[str, str]:
    """What the operator adds to every worker, after the plan's own variables, which it overrides.

    Mirrors operator v1.9.3, pkg/controller.v1/pytorch: envvar.go (PYTHONUNBUFFERED, PET_NPROC_PER_NODE), elastic.go (the rest).
    """
    rendezvous = plan.rendezvous
    return {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": plan.processes_per_node,
        "PET_RDZV_ENDPOINT": f"{rendezvous.host}:{rendezvous.port}",
        "PET_RDZV_BACKEND": rendezvous.backend,
        "PET_NNODES": f"{plan.nodes}:{plan.nodes}",
        "PET_MAX_RESTARTS": str(plan.restarts.max),
        "PET_RDZV_ID": rendezvous.id,
        "PET_RDZV_CONF": ",".join(f"{key}={value}" for key, value in rendezvous.conf),
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
    """The agent that stands for worker `index`."""
    name = names.pod_name(plan.name, "worker", index)
    env = dict(plan.env) | operator_environment(plan)
    env["PET_RDZV_ENDPOINT"] = placement.endpoint
    env["PET_LOCAL_ADDR"] = placement.addresses[index]
    if plan.rendezvous.backend == "c10d":  # every agent would find that a loopback endpoint is its own, and race for the store
        env["PET_RDZV_CONF"] += f",is_host={'true' if index == 0 else 'false'}"
    env.setdefault("GLOO_SOCKET_IFNAME", placement.interface)
    env["HOSTNAME"] = name
    mapped = {key: _on_this_machine(value, placement.folders) for key, value in env.items()}
    return Agent(name=name, argv=tuple(_on_this_machine(word, placement.folders) for word in plan.command), env=mapped)


def _on_this_machine(word: str, folders: Mapping[str, str]) -> str:
    """`word` with a pod's path replaced by the folder that stands for it: `/data/x`, `--flag=/data/x`."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for mount in sorted(folders, key=len, reverse=True):
        if value == mount or value.startswith(mount.rstrip("/") + "/"):
            return flag + equals + folders[mount] + value[len(mount) :]
    return word
