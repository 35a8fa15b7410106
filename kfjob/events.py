"""What a backend reports, and nothing of what it means: facts that `observe` reduces to views.

Every value is immutable and can be written down and replayed. Times are integers, nanoseconds since the epoch in UTC, because
the kubelet stamps log lines with nanoseconds and a datetime would cut them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

TRAINING_CONTAINER = "pytorch"
"""Name of the training container; the operator requires it (operator v1.9.3, pytorch_validation.go)."""

LOCAL_HOST_IP = "127.0.0.1"
"""`host_ip` of a pod of the local backend; a Kubernetes node never has a loopback address."""


class JobPhase(StrEnum):
    """Where a job is. The names are those of the operator's conditions, and two that it has no word for."""

    PENDING = "Pending"  # exists, nothing runs yet
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"  # deleted before it ended; only an archive knows it

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED}


class PodPhase(StrEnum):
    """A pod's phase, as Kubernetes names it, and `Deleted`."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETED = "Deleted"

    @property
    def ended(self) -> bool:
        """Whether its containers will not run again."""
        return self in {PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.DELETED}


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of one container's log, without its line end and without the time the kubelet put before it."""

    pod: str
    text: str
    time: int | None = None  # when the kubelet (or the supervisor) took it up; None: not known
    container: str = TRAINING_CONTAINER
    container_id: str = ""  # tells a restarted container from the one before it; "": not known
    skipped: int = 0  # lines before it, since the last one that was told, that nobody wanted to hear of
    open: bool = False  # a progress bar as it stands in a line that has no end yet, seen at `time`; the line comes when it has


class PodChanged(Struct, frozen=True, kw_only=True):
    """The whole state of one pod at one time."""

    pod: str
    phase: PodPhase
    uid: str = ""
    replica_type: str = "Worker"  # Master | Worker
    replica_index: int = 0
    node: str = ""  # the machine it runs on
    ip: str = ""
    host_ip: str = ""
    ready: bool = False
    restarts: int = 0  # of the training container
    container_id: str = ""  # of the training container that runs, or ran last
    exit_code: int | None = None  # of its newest end
    last_reason: str = ""  # of its newest end: OOMKilled, Error, Completed …; also while it runs again
    last_ended: int | None = None  # when that was
    reason: str = ""  # Kubernetes' word for why it waits or ended: CrashLoopBackOff, ImagePullBackOff, OOMKilled …
    message: str = ""
    created: int | None = None
    started: int | None = None  # of the training container
    time: int | None = None  # of the report


class JobChanged(Struct, frozen=True, kw_only=True):
    """The whole state of the job at one time, as its controller tells it."""

    phase: JobPhase
    reason: str = ""
    message: str = ""
    created: int | None = None
    started: int | None = None
    ended: int | None = None
    time: int | None = None


class LogGap(Struct, frozen=True, kw_only=True):
    """Lines of this container are lost: the kubelet rotated them away before they were read."""

    pod: str
    container_id: str = ""
    after: int | None = None  # time of the last line that was read
    reason: str = ""


class KubernetesEvent(Struct, frozen=True, kw_only=True, tag_field="is", tag="event"):
    """What a controller of the cluster (scheduler, kubelet, operator, provisioner) wrote down of an object of the job.

    The cluster forgets them after an hour, and tells the same one again with a higher `count`.
    """

    kind: str  # of the object: PyTorchJob | Pod | PersistentVolumeClaim | Workload …
    name: str  # of the object
    reason: str  # FailedScheduling, FailedMount, FailedCreatePod, BackOff …
    message: str = ""
    warning: bool = False
    source: str = ""  # who wrote it
    count: int = 1
    first: int | None = None
    time: int | None = None  # of the newest
    uid: str = ""  # of this record


class WorkloadStatus(Struct, frozen=True, kw_only=True, tag_field="is", tag="workload"):
    """Where the job stands in a queue (Kueue), as the queue's controller tells it."""

    name: str
    queue: str = ""  # the local queue it was put into
    cluster_queue: str = ""  # that gave it its quota; "": none did
    admitted: bool = False
    reason: str = ""  # of the newest condition that says why it waits, or was put out again
    message: str = ""
    time: int | None = None


class Tick(Struct, frozen=True, kw_only=True):
    """Time passed and nothing happened: what lets a pure view see a stall."""

    time: int


Event = LogLine | PodChanged | JobChanged | LogGap | KubernetesEvent | WorkloadStatus | Tick


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """A job and its pods, as one question to a backend answers it."""

    name: str
    namespace: str
    job: JobChanged
    pods: tuple[PodChanged, ...] = ()
    uid: str = ""
    launch: str = ""  # this launch's id; "" for a job that kfjob did not submit
    image: str = ""
    spec: str | None = None  # the submitted spec (JSON), None for a job that kfjob did not submit
    manifest: str | None = None  # the objects of the template (JSON) that kfjob submitted; None for a job made of a spec
    labels: dict[str, str] = field(default_factory=dict)
