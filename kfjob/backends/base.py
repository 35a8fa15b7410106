"""The interfaces of backends, the only ones that `kfjob.api` uses: every backend, a cluster, and this machine.

Backends report facts (`kfjob.joblog.events`); `kfjob.joblog` interprets them. The contract suite in tests/contract checks every
backend against the docstrings here.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct

from kfjob.base.capabilities import CAPABILITIES, BackendName, Capabilities
from kfjob.base.common_types import JsonMapping, JsonObject
from kfjob.base.errors import Refused
from kfjob.joblog.events import (
    TRAINING_CONTAINER,
    JobSnapshot,
    KubernetesEvent,
    LinesSkipped,
    LogGap,
    LogLine,
    OpenLine,
    PodChanged,
    StateEvent,
    WorkloadStatus,
)
from kfjob.objects.permissions import Permission

if TYPE_CHECKING:  # read-only commands need no plan, and importing pydantic takes longer than the rest of such a command
    from kfjob.plan import JobPlan


class JobRef(Struct, frozen=True, kw_only=True):
    """Identifies one launch of a job. The `uid` tells it from a later job of the same name."""

    backend: BackendName
    namespace: str
    name: str
    uid: str
    launch: str = ""
    job_kind: str = ""  # of a job on a cluster: PyTorchJob

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the backend."""
        return CAPABILITIES[self.backend]


class LogRange(Struct, frozen=True, kw_only=True):
    """Which part of a container's log to read. The default is the whole log as it is now."""

    container: str = TRAINING_CONTAINER
    tail: int | None = None  # only the last lines, at most this many
    limit_bytes: int | None = None  # at most this many bytes, from the start of the range
    since: int | None = None  # only lines written at this time or later (nanoseconds since the epoch)
    previous: bool = False  # the log of the container before the last restart
    follow: bool = False  # go on until the pod has ended, across restarts of the container; wait for a pod that is pending


class CommandStreams(Struct, frozen=True, kw_only=True):
    """What a command in a pod reads and writes: file descriptors of this process."""

    stdout: int
    stderr: int
    stdin: int | None = None  # None: the command reads nothing
    terminal: bool = False  # `stdin` and `stdout` are a terminal, and so are those of the command


LineFilter = Callable[[bytes], Sequence[tuple[int, int]]]
"""Selects lines from the next block of whole lines: returns the start of each and the position of its line end."""
LineFilterFactory = Callable[[], LineFilter]
"""Makes the filter for one container. A filter may keep state between blocks."""
LogEvent = LogLine | LogGap | LinesSkipped | OpenLine
"""What a filtered log consists of."""


class FieldChange(Struct, frozen=True, kw_only=True):
    """One field of a job that differs between the live and the desired one. None stands for a field that is not there."""

    path: str
    live: Any
    desired: Any
    in_place: bool  # kfjob can change the live job; otherwise the change needs a relaunch


class Requirement(Struct, frozen=True, kw_only=True):
    """One thing that a plan needs from this machine, and whether it is there."""

    path: str  # the field of the spec that asks for it
    summary: str = ""  # what is there
    program: str = ""  # the file of the program that each agent starts, in the requirement of `command`
    problem: Refused | None = None  # what is missing


class Backend(Protocol):
    """A place where jobs run. Methods may be called from several threads at once."""

    name: ClassVar[BackendName]
    """The name that users write; `CAPABILITIES` has its capabilities."""

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """Return the job and its pods as they are now.

        Raises:
            NotFound: the job does not exist.
        """

    def list(self, *, namespace: str | None) -> list[JobSnapshot]:
        """Return all jobs of a namespace, or with None of all namespaces, oldest first, without their pods."""

    def watch(self, ref: JobRef) -> Iterator[StateEvent]:
        """Yield the present state of the job, its pods and its own etcd, then every change.

        The iterator ends after the job has ended, or is deleted (then the last event has phase `Stopped`).
        """

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """Return the cluster's events about this launch, its pods and its claims, and its state in a queue, oldest first.

        The list is empty where no events exist (this machine) or the user may not read them: only explanations use them.

        Raises:
            NotFound: the job does not exist.
        """

    def logs(
        self, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
    ) -> Iterator[LogLine | LogGap]:
        """Yield the lines of one pod's container, oldest first.

        A `pod_state` that the caller read a moment ago saves a request for it.

        Raises:
            NotFound: the pod does not exist; or it has no log (yet) and `follow` is not set.
        """

    def filtered_logs(self, ref: JobRef, pod: str, log_range: LogRange, line_filter: LineFilterFactory) -> Iterator[LogEvent]:
        """Yield the selected lines of one pod's container, oldest first. A backend may yield other lines too.

        `LinesSkipped` comes before the line that follows the skipped ones. One other line per second still comes, and
        so does the last, so a caller sees that the container is alive and what it printed last. A progress bar comes as
        `OpenLine` while its line has no end.

        Raises:
            NotFound: as `logs`.
        """

    def execute(self, ref: JobRef, pod: PodChanged, command: Sequence[str], streams: CommandStreams) -> int:
        """Run a command beside the training in a pod that runs, and return its exit code.

        Raises:
            NotFound: the pod does not exist any more.
            Refused: the command cannot be started.
        """

    def stop(self, ref: JobRef, *, timeout: float) -> None:
        """End the job if it runs, remove it, and return once its pods are gone and its name is free.

        A job that has ended is removed too. A later job of the same name is left alone.

        Raises:
            NotFound: the job is gone already.
            WaitTimeout: some pods still exist after `timeout` seconds.
        """


class Inventory(Protocol):
    """Reads what a cluster has, for checks of a job and for `doctor`: nothing here belongs to a job.

    Every method may raise `Forbidden`: nodes and CRDs, for example, are often visible to administrators only.
    `api_version` is as in a manifest: `v1`, `apps/v1`.
    """

    namespace: str

    @property
    def host(self) -> str:
        """The API server's address, as messages name it."""

    def server_version(self) -> str:
        """Return the version of Kubernetes (`v1.34.4`). A check for whether the API server answers.

        Raises:
            Unreachable: the API server does not answer.
        """

    def list_resources(self, api_version: str) -> frozenset[str]:
        """Return the resources that the cluster serves for an API version; empty if it does not serve that version."""

    def get_object(self, api_version: str, resource: str, name: str, *, namespaced: bool = True) -> JsonObject | None:
        """Return one object; None if it does not exist."""

    def list_objects(
        self, api_version: str, resource: str, *, namespaced: bool = True, labels: str = ""
    ) -> builtins.list[JsonObject]:
        """Return all objects of a resource, in this namespace or (not `namespaced`) in the cluster; `labels` is a selector."""

    def dry_run_create(self, api_version: str, resource: str, body: JsonMapping) -> JsonObject:
        """Return the object as the API server, its admission plugins and its webhooks would store it; nothing is stored.

        Raises:
            AlreadyExists, Refused: the API server would not accept it.
        """

    def find_missing_permissions(self, permissions: Iterable[Permission]) -> builtins.list[Permission]:
        """Return the permissions that the user does not have, from a SelfSubjectAccessReview for each."""


class ClusterBackend(Backend, Protocol):
    """A backend on a Kubernetes cluster."""

    def stop(self, ref: JobRef, *, timeout: float, force: bool = False) -> None:
        """Do as `Backend.stop` says. With `force`, pods are removed whose time to end is over, as those of a lost node are.

        Raises:
            NotFound, WaitTimeout: as `Backend.stop`.
        """

    def get_by_pods(self, name: str, *, namespace: str) -> JobSnapshot | None:
        """Return the job as its pods show it, for a user who may read pods but not jobs; None if it has no pods."""

    def pods(self, name: str, *, namespace: str) -> tuple[str, tuple[PodChanged, ...]]:
        """Return the id of the job of this name (`kinds.registry.identify`) and its pods; ("", ()) if it has no pods."""

    def submit(self, objects: Sequence[JsonObject]) -> tuple[JobRef, builtins.list[JsonObject]]:
        """Create the objects of a job: what must exist before it, the job itself, then the others. It will own them all.

        Returns the job, and the other objects that existed before; those stay unchanged and without an owner.

        Raises:
            AlreadyExists: a job of this name exists, running or ended, or an object that is part of the launch; nothing was
                changed.
            Refused, Forbidden, Unreachable: as the class says; nothing was left behind.
        """

    def apply(self, objects: Sequence[JsonObject]) -> tuple[JobRef, builtins.list[JsonObject]]:
        """Change the live objects of a job, where that works in place, and create those that do not exist.

        Returns the job, and the objects that were not changed, because they do not belong to the job.

        Raises:
            NotFound: the job does not exist.
            Refused: a change needs a relaunch, or kfjob did not submit the job; nothing was changed.
        """

    def diff(self, objects: Sequence[JsonObject]) -> builtins.list[FieldChange]:
        """Return what the objects would change in the live ones, as the API server sees it; nothing is changed.

        Raises:
            NotFound: the job does not exist.
            Refused: kfjob did not submit the job, or the API server would not accept the change of the job.
        """

    def dry_run(self, objects: Sequence[JsonObject]) -> builtins.list[JsonObject]:
        """Return the objects as the API server would store them, after webhooks and validation; nothing is created.

        Raises:
            AlreadyExists, Refused, Forbidden: the API server would not accept one of them.
        """

    def apply_object(self, manifest: JsonObject) -> None:
        """Create an object, or change it to match the manifest, by a server-side apply."""

    def create_object(self, manifest: JsonObject) -> JsonObject:
        """Create one object, and return it as the API server has stored it.

        Raises:
            AlreadyExists: an object has this name.
        """

    def replace_object(self, manifest: JsonObject) -> JsonObject:
        """Replace one object, and return it as the API server has stored it.

        Raises:
            Refused: the object has changed since the manifest's resource version.
            NotFound: the object does not exist.
        """

    def delete_object(self, manifest: JsonObject) -> None:
        """Delete one object; with a uid in its metadata, only the object with this uid.

        Raises:
            NotFound: the object does not exist.
            Refused: another object has its name.
        """

    def has_remains(self, ref: JobRef) -> bool:
        """Return whether an object of this launch, which is being deleted, still exists.

        Raises:
            Forbidden: the user may not list the objects of a job.
        """

    def annotate(self, ref: JobRef, annotations: JsonMapping) -> None:
        """Add annotations to this launch of a job.

        Raises:
            NotFound: the job does not exist.
            Refused: another launch has its name, or the job changed at this moment.
        """

    def watch_jobs(self, namespace: str) -> Iterator[JobSnapshot]:
        """Yield the jobs of a namespace without their pods, then every job that is created or changed, without an end."""

    def node_architectures(self) -> frozenset[str]:
        """Return the architectures of the nodes (`amd64`, `arm64`); empty if the user may not list nodes."""

    def inventory(self, namespace: str) -> Inventory:
        """Return a reader of what the cluster has, for jobs of a namespace."""


class MachineBackend(Backend, Protocol):
    """A backend on this machine."""

    def submit(self, plan: JobPlan) -> JobRef:
        """Start the agents of the plan.

        Raises:
            AlreadyExists: a job of this name exists, running or ended; nothing was changed.
            Refused: this machine cannot run the job; nothing was left behind.
        """

    def apply(self, plan: JobPlan) -> JobRef:
        """Change the live job to match the plan, where that works in place.

        Raises:
            NotFound: the job does not exist.
            Refused: the change needs a relaunch.
        """

    def record_decision(self, ref: JobRef, reason: str) -> None:
        """Record why the guard does not relaunch a launch that has ended.

        Raises:
            NotFound: the job does not exist, or another launch has its name.
        """

    def count_gpus(self) -> int:
        """Return the number of GPUs that jobs can use."""

    def check_requirements(self, plan: JobPlan) -> builtins.list[Requirement]:
        """Return what the plan needs from this machine, and whether it is there; nothing is started."""

    def find_first_pod(self, plan: JobPlan) -> PodOnMachine:
        """Return how this machine would run the first pod of the plan; nothing is started."""


class PodOnMachine(Protocol):
    """A pod of a plan, as a machine would run it."""

    @property
    def folders(self) -> Mapping[str, str]:
        """The folder of this machine for each mount path."""

    @property
    def mounts(self) -> Mapping[str, str]:
        """Those of `folders` that the pod has at the mount path itself, also for paths in its code."""

    @property
    def script(self) -> Path | None:
        """The file of the Python script that the pod runs, also one in a volume; None without one."""

    def find_program(self) -> str:
        """Return the file of the program that the pod starts.

        Raises:
            Refused: this machine does not have the program, its script or the folder where it starts.
        """


def find_api_version(inventory: Inventory, api_versions: Sequence[str], resource: str) -> str | None:
    """Return the first of these API versions in which the cluster serves the resource; None if it serves none of them."""
    return next((version for version in api_versions if resource in inventory.list_resources(version)), None)
