"""What a plan is made of, and what it is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from kfjob.spec import names
from kfjob.spec.instances import Instance
from kfjob.spec.pod import EnvFrom, Pod, Resources
from kfjob.spec.rendezvous import Launcher
from kfjob.spec.scheduling import Restarts, RunPolicy, Scheduling
from kfjob.spec.volumes import Volume

BackendName = Literal["kubernetes", "local"]
Origin = Literal["spec", "instance", "default", "cluster"]

DEFAULT_ETCD_IMAGE = "quay.io/coreos/etcd:v3.4.37"
"""3.4 is the last minor version that refreshes the lease of a directory, which torch's `etcd` backend lives on."""

GRACE_SECONDS = 60
"""torchrun gives its workers 30 s after SIGTERM; Kubernetes' default of 30 s would end the agent in the same moment."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a plan needs to know and a spec cannot say."""

    backend: BackendName
    launch: str  # unique for each launch; the rendezvous id is made of it
    namespace: str = "default"
    etcd_image: str = DEFAULT_ETCD_IMAGE


class Decision(NamedTuple):
    """One decided value: which, where it came from, and why."""

    path: str
    value: str
    origin: Origin
    reason: str = ""


class Decisions:
    """What was decided so far."""

    def __init__(self) -> None:
        self.made: list[Decision] = []

    def take(self, path: str, said: str | None, otherwise: str, reason: str, *, origin: Origin = "default") -> str:
        """What the spec said, else `otherwise`; written down either way."""
        if said is None:
            self.made.append(Decision(path=path, value=otherwise, origin=origin, reason=reason))
            return otherwise
        self.made.append(Decision(path=path, value=said, origin="spec"))
        return said


@dataclass(frozen=True, kw_only=True)
class RendezvousPlan:
    """The rendezvous as every agent is told of it."""

    backend: str  # c10d, etcd, etcd-v2; static also for launchers that have no rendezvous of their own
    host: str
    port: int
    id: str
    conf: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """A job with nothing left to decide. `None` never means "default" here."""

    name: str
    namespace: str
    launch: str
    backend: BackendName
    image: str  # "" on this machine
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    own_pull_secret: str  # the one of them that kfjob keeps, with the login of whoever submits; "" where there is none
    service_account: str
    nodes: int  # agents at the start, the Master among them
    min_nodes: int
    max_nodes: int
    has_master: bool  # the first pod is a Master
    is_dynamic: bool  # the operator is given an elasticPolicy; else the Master's address
    metrics: tuple[Mapping[str, Any], ...]  # of an autoscaler
    launcher: Launcher
    processes_per_node: str  # torch's own notation: a number, auto, gpu, cpu
    command: tuple[str, ...]  # with the launcher; `$(NAME)` stands for a variable, as in a container's command
    env: tuple[tuple[str, str], ...]
    env_from: tuple[tuple[str, EnvFrom], ...]  # on this machine: taken from the user's own environment
    instance: Instance | None  # None: not said
    resources: Resources  # with what the instance has
    volumes: tuple[Volume, ...]
    shared_memory: str | None  # "" is as large as the pod's memory, None is no volume of its own
    rendezvous: RendezvousPlan
    own_etcd_image: str  # "" where the job has no etcd of its own
    restarts: Restarts
    run: RunPolicy
    scheduling: Scheduling  # with the node selector and the tolerations of the instance
    pod: Pod
    grace_seconds: int  # between SIGTERM and SIGKILL
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    overrides: Mapping[str, Any]  # merged into the PyTorchJob last
    spec_json: str  # what is recorded with the job
    spec_hash: str
    decisions: tuple[Decision, ...] = field(default=(), compare=False)

    @property
    def pods(self) -> tuple[str, ...]:
        """The pods with an agent, in the order of their node rank."""
        return names.pod_names(self.name, self.nodes, master=self.has_master)
