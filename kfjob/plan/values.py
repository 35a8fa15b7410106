"""The values of a plan and of its context."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from kfjob.base.capabilities import CAPABILITIES, BackendName, Capabilities
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.objects import names
from kfjob.shell.commands import Launcher
from kfjob.spec.instances import Instance
from kfjob.spec.job import JobSpec
from kfjob.spec.pod import EnvVarSource, Resources
from kfjob.spec.scheduling import Restarts, Scheduling
from kfjob.spec.volumes import Volume

Origin = Literal["spec", "instance", "default", "cluster"]

DEFAULT_ETCD_IMAGE = "quay.io/coreos/etcd:v3.4.37"
"""3.4 is the last minor version that refreshes the lease of a directory. torch's `etcd` backend depends on that."""

GRACE_SECONDS = 60
"""Time that a pod has to end after SIGTERM; torchrun gives its workers 30 s, and Kubernetes' default of 30 s would end the
agent at the same time."""


class NamePods(Protocol):
    """Names the pods of a job by node rank, as they reach each other."""

    def __call__(self, job: str, nodes: int, /, *, master: bool) -> tuple[str, ...]:
        """Return the names, the Master's first."""


class Context(Struct, frozen=True, kw_only=True):
    """Facts from outside the spec."""

    backend: BackendName
    launch: str  # unique for each launch; part of the rendezvous id
    namespace: str = "default"
    namespace_origin: Origin = "cluster"
    namespace_reason: str = "the namespace of the target"
    start_folder: str = ""  # absolute path of the folder where agents of a local job start; "" on a cluster
    etcd_image: str = DEFAULT_ETCD_IMAGE
    kind: str = ""  # of the job on a cluster
    kind_origin: Origin = "default"
    kind_reason: str = ""
    name_pods: NamePods = names.pod_names  # on a cluster the kind of the job decides

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return CAPABILITIES[self.backend]


class Decision(NamedTuple):
    """One decided value with its origin and its reason."""

    path: str
    value: str
    origin: Origin
    reason: str = ""


class Decisions:
    """The decisions so far."""

    def __init__(self) -> None:
        self.entries: list[Decision] = []

    def decide(self, path: str, value: str | None, default: str, reason: str, *, origin: Origin = "default") -> str:
        """Record and return the value of the spec, else the default."""
        if value is None:
            self.entries.append(Decision(path=path, value=default, origin=origin, reason=reason))
            return default
        self.entries.append(Decision(path=path, value=value, origin="spec"))
        return value


class RendezvousPlan(Struct, frozen=True, kw_only=True):
    """The rendezvous that every agent uses."""

    backend: str  # c10d, etcd, etcd-v2 or static; static also for launchers without a rendezvous
    host: str
    port: int
    id: str
    conf: tuple[tuple[str, str], ...]


class JobPlan(Struct, frozen=True, kw_only=True):
    """The spec of a job, and everything that it leaves open, decided. `None` never means "default" in the plan's own fields.

    A field of the spec that needs no decision has no field here: read it from `spec`.
    """

    spec: JobSpec
    pods: tuple[str, ...]  # the names under which the agents reach each other, by node rank
    namespace: str
    launch: str
    backend: BackendName
    image: str  # "" with the local backend
    image_pull_secrets: tuple[str, ...]  # includes `own_pull_secret`
    own_pull_secret: str  # the pull secret that kfjob renews with the user's login, else ""
    launcher: Launcher
    processes_per_node: str  # in torch's notation: a number, auto, gpu or cpu
    command: tuple[str, ...]  # includes the launcher; `$(NAME)` stands for a variable; (): the image's own entry point
    env: tuple[tuple[str, str | EnvVarSource], ...]  # in order; secrets are in the user's environment locally
    instance: Instance | None  # None: the spec names no instance
    resources: Resources  # includes the devices of the instance
    volumes: tuple[Volume, ...]  # includes the certificates of the rendezvous
    shared_memory: str | None  # "": as large as the pod's memory; None: no volume
    rendezvous: RendezvousPlan
    own_etcd_image: str  # "" if the job has no etcd of its own
    restarts: Restarts
    scheduling: Scheduling  # includes the node selector and the toleration of the instance
    grace_seconds: int  # between SIGTERM and SIGKILL
    observe_config: ObserveConfig  # recorded with the job, for everyone who reads its logs
    spec_json: str  # recorded in an annotation of the job
    spec_hash: str
    master: JobPlan | None = None  # the Master's pod, if it differs from the Workers; as if all pods were like it
    submitted_by: str = ""  # recorded with the launch; "" until it is submitted
    spec_file: str = ""  # recorded with the launch: digest and path of the file of its spec; "" without one
    relaunches: str = ""  # recorded with the launch: the guard's relaunches before it (JSON)
    start_folder: str = ""  # where agents of a local job start unless `pod.working_dir` is set; "" on a cluster
    decisions: tuple[Decision, ...] = ()

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.spec.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return CAPABILITIES[self.backend]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `command` and `args`; without a command they follow the image's own entry point."""
        return (*self.command, *(self.spec.args or ()))

    @property
    def roles(self) -> tuple[JobPlan, ...]:
        """The plans of the different pods: the Master's first, if it differs."""
        return (self.master, self) if self.master else (self,)

    def get_role(self, index: int) -> JobPlan:
        """Return the plan of the pod with node rank `index`."""
        return self.master if self.master and index == 0 else self
