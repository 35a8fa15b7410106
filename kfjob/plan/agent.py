"""JobPlan -> the environment and argv of one elastic agent.

On a cluster the operator adds the rendezvous to each pod's environment. The local backend adds the same variables, so that the
same command line runs in both. A torchrun flag on the command line overrides these variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from kfjob.objects import names
from kfjob.plan import JobPlan


def operator_environment(plan: JobPlan, index: int = 0) -> dict[str, str]:
    """Return the variables that the operator adds to the pod of node rank `index`; they override the plan's own.

    Mirrors operator v1.9.3, pkg/controller.v1/pytorch: envvar.go, master.go, elastic.go.
    """
    spec = plan.spec
    env = {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": plan.processes_per_node}
    if spec.has_master:
        env |= _master_variables(plan, index)
    if not spec.is_dynamic:
        return env | {"PET_NNODES": str(spec.nodes)}
    rendezvous = plan.rendezvous
    env |= {
        "PET_RDZV_ENDPOINT": f"{rendezvous.host}:{rendezvous.port}",
        "PET_RDZV_BACKEND": rendezvous.backend,
        "PET_NNODES": f"{spec.min_nodes}:{spec.max_nodes}",
        "PET_MAX_RESTARTS": str(plan.restarts.max),
        "PET_RDZV_ID": rendezvous.id,
    }
    if rendezvous.conf:
        env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in rendezvous.conf)
    return env


def _master_variables(plan: JobPlan, index: int) -> dict[str, str]:
    processes = int(plan.processes_per_node) if plan.processes_per_node.isdecimal() else 1
    master = plan.pods[0]
    port = str(plan.rendezvous.port if not plan.rendezvous.backend.startswith("etcd") else names.RENDEZVOUS_PORT)
    return {
        "MASTER_ADDR": master,
        "PET_MASTER_ADDR": master,
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "WORLD_SIZE": str(plan.spec.nodes * processes),
        "RANK": str(index),
        "PET_NODE_RANK": str(index),
    }


class AgentPlace(Struct, frozen=True, kw_only=True):
    """The addresses and folders of a job's agents on one machine."""

    addresses: tuple[str, ...]  # one loopback address for each agent
    endpoint: str  # host:port of the rendezvous
    interface: str  # network interface of the loopback addresses, for gloo
    folders: Mapping[str, str]  # mount path in the pod -> folder on this machine


class AgentProcess(Struct, frozen=True, kw_only=True):
    """One agent as a process on this machine."""

    name: str  # the name of its pod on a cluster
    argv: tuple[str, ...]
    env: Mapping[str, str]  # added to the environment of the machine
    working_dir: str


def make_local_agent(plan: JobPlan, index: int, placement: AgentPlace) -> AgentProcess:
    """Return the agent of node rank `index`."""
    name = plan.pods[index]
    rendezvous = operator_environment(plan, index) | _local_addresses(plan, index, placement)
    env = dict(_list_local_variables(plan, index, placement)) | rendezvous
    env.setdefault("GLOO_SOCKET_IFNAME", placement.interface)
    env["HOSTNAME"] = name
    env = {key: _replace_path(_expand(value, env), placement.folders) for key, value in env.items()}
    words = (_expand(word, env) for word in plan.words)
    folder = plan.spec.pod.working_dir
    return AgentProcess(
        name=name,
        argv=tuple(_replace_path(word, placement.folders) for word in words),
        env=env,
        working_dir=_replace_path(folder, placement.folders) if folder else plan.start_folder,
    )


def _list_local_variables(plan: JobPlan, index: int, placement: AgentPlace) -> Iterator[tuple[str, str]]:
    """Yield the variables of the plan without those from secrets and config maps, which the user's environment has."""
    for name, value in plan.env:
        if isinstance(value, str):
            yield name, value
        elif value.field:
            yield name, _field(plan, index, value.field, placement)


def _local_addresses(plan: JobPlan, index: int, placement: AgentPlace) -> dict[str, str]:
    """Return the addresses and ports that differ from the operator's."""
    env = {"PET_LOCAL_ADDR": placement.addresses[index]}
    host, _, port = placement.endpoint.rpartition(":")
    if plan.spec.is_dynamic:
        env["PET_RDZV_ENDPOINT"] = placement.endpoint
    if plan.spec.has_master:
        master = {"MASTER_ADDR": placement.addresses[0], "MASTER_PORT": port if host == placement.addresses[0] else "29500"}
        env |= master | {f"PET_{key}": value for key, value in master.items()}
    if plan.rendezvous.backend == "c10d":  # every agent takes a loopback endpoint for its own, and they race for the store
        is_host = f"is_host={'true' if index == 0 else 'false'}"
        env["PET_RDZV_CONF"] = ",".join([*(f"{key}={value}" for key, value in plan.rendezvous.conf), is_host])
    return env


def _field(plan: JobPlan, index: int, field: str, placement: AgentPlace) -> str:
    """Return the value that the field has in the agent's pod."""
    address = placement.addresses[index]
    fields = {"metadata.name": plan.pods[index], "metadata.namespace": plan.namespace}
    return fields.get(field, address if field.endswith("IP") else "")


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Replace `$(NAME)` as the kubelet does: unknown names stay, and `$$` is a dollar sign.

    Mirrors Kubernetes v1.34, third_party/forked/golang/expansion/expand.go.
    """
    return _REFERENCE.sub(lambda match: "$" if match[0] == "$$" else env.get(match[1], match[0]), text)


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def _replace_path(word: str, folders: Mapping[str, str]) -> str:
    """Return the word with a path in the pod replaced by the local folder: `/data/x`, `--flag=/data/x`."""
    flag, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for mount in sorted(folders, key=len, reverse=True):
        if value == mount or value.startswith(mount.rstrip("/") + "/"):
            return flag + equals + folders[mount] + value[len(mount) :]
    return word
