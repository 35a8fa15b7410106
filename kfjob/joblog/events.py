"""Facts that a backend reports; `kfjob.joblog` interprets them.

Every value is immutable and can be stored and replayed. Times are integers, nanoseconds since the epoch in UTC, because the
kubelet's timestamps have nanoseconds and a datetime would truncate them.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import force_setattr

from kfjob.base.capabilities import BackendName
from kfjob.base.common_types import Identifier, TextEnum
from kfjob.base.text import plural
from kfjob.base.units import check_time

TRAINING_CONTAINER = "pytorch"
"""Name of the training container; the operator requires it (operator v1.9.3, pytorch_validation.go)."""

ETCD_CONTAINER = "etcd"
"""The container of the job's own etcd."""
ETCD_WAIT = "wait-for-etcd"
"""The init container that waits for the job's own etcd."""

NOT_RESTARTED = "NotRestarted"
"""Reason of a local job that ended because a restart cannot cure its failure."""


END_UNKNOWN = "EndUnknown"
"""Reason of a job of which only logs are saved: they do not show how it ended."""


NODE_NOT_READY = "NodeNotReady"
"""Reason of a pod whose node does not answer, and of the event about it."""
TERMINATING = "Terminating"
"""Reason of a pod that has been told to end and still runs."""


class JobPhase(TextEnum):
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


class PodPhase(TextEnum):
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


class PodChanged(Struct, frozen=True, kw_only=True):
    """The complete state of one pod at one time."""

    pod: Identifier  # name of the pod
    phase: PodPhase  # state of the pod
    uid: Identifier = ""  # identifies the pod
    replica_type: Identifier = "Worker"  # `Master` or `Worker`
    replica_index: int = 0  # index among the replicas of its type
    host: Identifier = ""  # the name under which other pods reach it; "": the name of the pod
    node: Identifier = ""  # the node that it runs on
    ip: Identifier = ""  # its address
    host_ip: Identifier = ""  # address of its node
    ready: bool = False  # whether its training container runs and is ready
    restarts: int = 0  # restarts of the training container
    container_id: Identifier = ""  # id of the training container that runs, or ran last
    exit_code: int | None = None  # exit code of the last termination
    last_reason: Identifier = ""  # reason of the last termination: OOMKilled, Error, Completed …; also while it runs again
    last_ended: int | None = None  # time of the last termination
    reason: Identifier = ""  # Kubernetes' reason why the pod waits or ended: CrashLoopBackOff, ImagePullBackOff, OOMKilled …
    message: str = ""  # the reason in words
    container: Identifier = ""  # the container that the reason is about; "": the one that trains, or the pod
    ended_by_kfjob: bool = False  # the local backend has told it to end; it did not end by itself
    lost_lines: int = 0  # lines of its ended containers' logs that the local backend could not write
    loss_reason: str = ""  # why lines were lost, in the system's words
    created: int | None = None  # when the pod was created
    started: int | None = None  # when the training container started
    time: int | None = None  # when the backend reported this

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "last_ended", "created", "started", "time")

    @property
    def status(self) -> str:
        """The pod's status in one word, as in the column of `kubectl get pods`."""
        return self.reason or str(self.phase)

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


class StoreChanged(Struct, frozen=True, kw_only=True):
    """The complete state of the job's own etcd on a cluster, which is none of its pods."""

    state: PodChanged


class ReportedProgress(Struct, frozen=True, kw_only=True):
    """The progress that a program has posted to the status of its job."""

    percent: int | None = None  # of the whole training
    remaining_seconds: int | None = None
    metrics: dict[Identifier, str] = {}  # by name, as the program has written them
    time: int | None = None  # when it was reported

    def __post_init__(self) -> None:
        """Forget times that no clock shows."""
        _check_times(self, "time")


class JobChanged(Struct, frozen=True, kw_only=True):
    """The complete state of the job at one time, as its controller reports it."""

    phase: JobPhase  # state of the job
    reason: Identifier = ""  # word of the controller for the state
    message: str = ""  # the reason in words
    created: int | None = None  # when the job was submitted
    started: int | None = None  # when the job began to run
    ended: int | None = None  # when the job ended
    time: int | None = None  # when the backend reported this
    reported: ReportedProgress | None = None  # the progress in the status of a TrainJob

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
    container: Identifier = ""  # of a pod; "": the one that trains, or the pod
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
    cluster: Identifier = ""  # the cluster where MultiKueue runs the job; "": this one
    position: int | None = None  # among all jobs that wait for the same quota, from 1; None if unknown
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


StateEvent = PodChanged | StoreChanged | JobChanged
Event = LogLine | LinesSkipped | OpenLine | StateEvent | LogGap | KubernetesEvent | WorkloadStatus | Tick


class JobSnapshot(Struct, frozen=True, kw_only=True):
    """A job and its pods, as a backend reports them at one time."""

    name: Identifier  # name of the job
    namespace: Identifier  # namespace of the job
    job: JobChanged  # state of the job: `phase`, times, and the reason in words
    pods: tuple[PodChanged, ...] = ()  # the pods; empty in a list of jobs
    store: PodChanged | None = None  # the pod of the job's own etcd; None without one, on this machine and in a list of jobs
    uid: Identifier = ""  # identifies the launch on its backend
    launch: Identifier = ""  # id of the launch; "" for a job that kfjob did not submit
    backend: BackendName | None = None  # where the job runs or ran; None for saved logs, and in older records
    job_kind: Identifier = ""  # kind of a job on a cluster, as the API names it
    image: str = ""  # image of the training container; "" on this machine
    spec: str | None = None  # the submitted spec (JSON); None for a job that kfjob did not submit from a spec
    manifest: str | None = None  # the submitted objects (JSON) of a template; None for a job from a spec
    observe_config: str | None = None  # what observation needs of the spec (JSON); None for a job that others submitted
    submitted_by: str = ""  # who submitted the launch, as kfjob recorded it; "" if that is unknown
    spec_file: str = ""  # digest and path of the file of the submitted spec; "" without one
    relaunches: str = ""  # the guard's relaunches before this launch (JSON); "" without one
    guard_decision: str = ""  # why the guard does not relaunch this launch any more; "" if it may
    start_folder: str = ""  # where the agents of a local job start unless its spec says so; "" on a cluster
    labels: dict[str, str] = field(default_factory=dict)  # the labels of the job
    observed: int | None = None  # when a bundle was written, whose job may not have ended; None: not in a bundle

    @property
    def phase(self) -> JobPhase:
        """The state of the job."""
        return self.job.phase

    @property
    def created(self) -> int | None:
        """When the job was submitted."""
        return self.job.created

    @property
    def started(self) -> int | None:
        """When the job began to run."""
        return self.job.started

    @property
    def ended(self) -> int | None:
        """When the job ended."""
        return self.job.ended

    def __repr__(self) -> str:
        """Return one line, without the spec and the pods."""
        return f"<JobSnapshot {self.namespace}/{self.name} {self.phase} ({plural(len(self.pods), 'pod')})>"
