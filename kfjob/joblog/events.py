"""Facts that a backend reports; `kfjob.joblog` interprets them.

Every value is immutable and can be stored and replayed. Times are integers, nanoseconds since the epoch in UTC, because the
kubelet's timestamps have nanoseconds and a datetime would truncate them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import force_setattr

from kfjob.base.capabilities import BackendName
from kfjob.base.common_types import Identifier
from kfjob.base.text import plural
from kfjob.base.units import check_time

TRAINING_CONTAINER = "pytorch"
"""Name of the training container; the operator requires it (operator v1.9.3, pytorch_validation.go)."""

NOT_RESTARTED = "NotRestarted"
"""Reason of a local job that ended because a restart cannot cure its failure."""


END_UNKNOWN = "EndUnknown"
"""Reason of a job of which only logs are saved: they do not show how it ended."""


TERMINATING = "Terminating"
"""Reason of a pod that has been told to end and still runs."""


class JobPhase(StrEnum):
    """The state of a job: the operator's conditions, and two states that it has no condition for."""

    PENDING = "Pending"  # exists, nothing runs yet
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"  # deleted before it ended; known from the archive only

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self in {JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.STOPPED}


class PodPhase(StrEnum):
    """A pod's phase in Kubernetes, or `Deleted`."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETED = "Deleted"

    @property
    def ended(self) -> bool:
        """Whether the pod's containers will not run again."""
        return self in {PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.DELETED}


def _check_times(event: Struct, *names: str) -> None:
    """Set the times of an event that are outside 1970 to 2262 to None: programs and broken clocks report such times."""
    for name in names:
        time = getattr(event, name)
        if time is not None and check_time(time) is None:
            force_setattr(event, name, None)


class LogLine(Struct, frozen=True, kw_only=True):
    """One line of one container's log, without its line end and without the kubelet's timestamp."""

    pod: Identifier
    text: str
    time: int | None = None  # the kubelet's (or the supervisor's) timestamp; None: unknown
    container: Identifier = TRAINING_CONTAINER
    container_id: Identifier = ""  # differs after a restart of the container; "": unknown

    def __str__(self) -> str:
        """Return the text."""
        return self.text


class LinesSkipped(Struct, frozen=True, kw_only=True):
    """Lines that a line filter left out; they stand before the next `LogLine` of this container."""

    pod: Identifier
    count: int
    container: Identifier = TRAINING_CONTAINER
    container_id: Identifier = ""


class OpenLine(Struct, frozen=True, kw_only=True):
    """The present state of a progress bar in a line that has no end yet. The `LogLine` comes when it ends."""

    pod: Identifier
    text: str
    time: int  # when kfjob read it
    container: Identifier = TRAINING_CONTAINER
    container_id: Identifier = ""


class ProcessState(StrEnum):
    """Why a process does not run; `RUNNING` also stands for one that sleeps, which a healthy process often does."""

    RUNNING = "running"
    STOPPED = "stopped"  # by a signal such as SIGSTOP, or by a debugger
    BLOCKED = "blocked"  # uninterruptible in the kernel, usually for a disk, a network file system or a device


class RankProcess(Struct, frozen=True, kw_only=True):
    """A process of a pod of the local backend."""

    pid: int
    rank: int | None = None  # global rank; None: its environment does not name one
    state: ProcessState = ProcessState.RUNNING

    def __str__(self) -> str:
        """Return `rank 1, process 123`."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank}, process {self.pid}"


class PodChanged(Struct, frozen=True, kw_only=True):
    """The complete state of one pod at one time."""

    pod: Identifier
    phase: PodPhase
    uid: Identifier = ""
    replica_type: Identifier = "Worker"  # Master | Worker
    replica_index: int = 0
    host: Identifier = ""  # the name under which other pods reach it; "": the name of the pod
    node: Identifier = ""
    ip: Identifier = ""
    host_ip: Identifier = ""
    ready: bool = False
    restarts: int = 0  # of the training container
    container_id: Identifier = ""  # of the training container that runs, or ran last
    exit_code: int | None = None  # of the last termination
    last_reason: Identifier = ""  # of the last termination: OOMKilled, Error, Completed …; also while it runs again
    last_ended: int | None = None  # time of the last termination
    reason: Identifier = ""  # Kubernetes' reason why the pod waits or ended: CrashLoopBackOff, ImagePullBackOff, OOMKilled …
    message: str = ""
    ended_by_kfjob: bool = False  # the local backend has told it to end; it did not end by itself
    lost_lines: int = 0  # of the logs of its ended containers: the local backend could not write them
    loss_reason: str = ""  # why, in the system's words
    created: int | None = None
    started: int | None = None  # of the training container
    time: int | None = None  # of this report
    processes: tuple[RankProcess, ...] = ()  # of a local pod that runs, when its state was asked for: one for each rank

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "last_ended", "created", "started", "time")

    @property
    def loss(self) -> str:
        """Return `298 lines of its log were lost: no space left on device`; "" for a complete log."""
        if not self.lost_lines:
            return ""
        reason = self.loss_reason[:1].lower() + self.loss_reason[1:]
        return f"{plural(self.lost_lines, 'line')} of its log {'was' if self.lost_lines == 1 else 'were'} lost: {reason}"


def find_host(pod: PodChanged) -> str:
    """Return the name under which other pods reach a pod."""
    return pod.host or pod.pod


class JobChanged(Struct, frozen=True, kw_only=True):
    """The complete state of the job at one time, as its controller reports it."""

    phase: JobPhase
    reason: Identifier = ""
    message: str = ""
    created: int | None = None
    started: int | None = None
    ended: int | None = None
    time: int | None = None

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "created", "started", "ended", "time")

    @property
    def newest_time(self) -> int | None:
        """The time of the report, or else the newest time in it."""
        return self.time or self.ended or self.started or self.created


class LogGap(Struct, frozen=True, kw_only=True):
    """Lines of this container that are lost: the kubelet rotated the log before kfjob read them."""

    pod: Identifier
    container_id: Identifier = ""
    after: int | None = None  # time of the last line before the gap
    reason: str = ""

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "after")


class KubernetesEvent(Struct, frozen=True, kw_only=True, tag_field="is", tag="event"):
    """An event that a controller (scheduler, kubelet, operator, provisioner) recorded about an object of the job.

    The cluster keeps an event for an hour. A repeated event has the same uid and a higher `count`.
    """

    kind: Identifier  # of the object: Pod | PersistentVolumeClaim | Workload, or the kind of the job …
    name: Identifier  # of the object
    about_job: bool = False  # the object is the job itself
    reason: Identifier  # FailedScheduling, FailedMount, FailedCreatePod, BackOff …
    message: str = ""
    warning: bool = False
    source: Identifier = ""  # the controller
    count: int = 1
    first: int | None = None  # time of the first occurrence
    time: int | None = None  # time of the last occurrence
    uid: Identifier = ""  # of the event

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "first", "time")


class WorkloadStatus(Struct, frozen=True, kw_only=True, tag_field="is", tag="workload"):
    """The state of the job in a Kueue queue."""

    name: Identifier
    queue: Identifier = ""  # the LocalQueue
    cluster_queue: Identifier = ""  # the ClusterQueue that reserved quota; "": none
    admitted: bool = False  # now, or until the job finished
    reason: Identifier = ""  # of the newest condition that explains why the job waits, or was evicted
    message: str = ""
    time: int | None = None

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "time")


class Tick(Struct, frozen=True, kw_only=True):
    """Time has passed without another event. It lets a pure view detect a stall."""

    time: int
    is_current: bool = True
    """Whether all that the pods have printed was read: no log is silent that was opened a moment ago."""


Event = LogLine | LinesSkipped | OpenLine | PodChanged | JobChanged | LogGap | KubernetesEvent | WorkloadStatus | Tick


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """A job and its pods, as a backend reports them at one time."""

    name: Identifier
    namespace: Identifier
    job: JobChanged
    pods: tuple[PodChanged, ...] = ()
    uid: Identifier = ""
    launch: Identifier = ""  # launch id; "" for a job that kfjob did not submit
    backend: BackendName | None = None  # where the job runs or ran; None for saved logs, and in older records
    job_kind: Identifier = ""  # of a job on a cluster, as the API names it
    image: str = ""
    spec: str | None = None  # the submitted spec (JSON); None for a job that kfjob did not submit from a spec
    manifest: str | None = None  # the submitted objects (JSON) of a template; None for a job from a spec
    observe_config: str | None = None  # what observation needs of the spec (JSON); None for a job that others submitted
    submitted_by: str = ""  # who submitted the launch, as kfjob recorded it; "" if that is unknown
    spec_file: str = ""  # digest and path of the file of the submitted spec; "" without one
    start_folder: str = ""  # where the agents of a local job start unless its spec says so; "" on a cluster
    labels: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return one line, without the spec and the pods."""
        return f"<JobSnapshot {self.namespace}/{self.name} {self.job.phase} ({plural(len(self.pods), 'pod')})>"
