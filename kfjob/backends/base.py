"""What every backend can do: the one interface that `api` talks to.

Backends report facts (`kfjob.events`); `observe` says what they mean. The contract suite in tests/contract holds every backend
to what the docstrings here promise.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct, field

from kfjob.events import (
    TRAINING_CONTAINER,
    JobChanged,
    JobSnapshot,
    KubernetesEvent,
    LogGap,
    LogLine,
    PodChanged,
    WorkloadStatus,
)

if TYPE_CHECKING:  # a command that only looks at a job needs no plan, and pydantic takes longer than all else
    from kfjob.plan import BackendName, JobPlan


class JobRef(Struct, frozen=True, kw_only=True):
    """Which job. `uid` is this very job, not a later one of the same name."""

    backend: BackendName
    namespace: str
    name: str
    uid: str
    launch: str = ""


LineFilter = Callable[[bytes], Sequence[tuple[int, int]]]
"""Says which lines of the next block of whole lines are wanted: where each begins, and where its line end is."""
LineFilterFactory = Callable[[], LineFilter]
"""Makes a filter for one container: a filter remembers what it saw."""


class LogRange(Struct, frozen=True, kw_only=True):
    """Which part of a container's log. With nothing said: all of it, as it is now."""

    container: str = TRAINING_CONTAINER
    tail: int | None = None  # the last so many lines
    limit_bytes: int | None = None  # at most so many bytes, from the beginning of the range
    since: int | None = None  # lines taken up at this time or later (nanoseconds since the epoch)
    previous: bool = False  # of the container before the last restart
    follow: bool = False  # go on until the pod has ended, across restarts of the container; wait for a pod that is pending
    sieve: LineFilterFactory | None = None
    """Makes what tells the lines of one container that are wanted; the others may be left out. Of these one a second comes
    nevertheless, and the last, so that it can be seen that the container lives and what it said last. With a sieve, a
    progress bar is told of while its line is open (`LogLine.open`)."""
    state: PodChanged | None = None  # of the pod, as it was told a moment ago: saves a backend from asking again


class FieldChange(Struct, frozen=True, kw_only=True):
    """One field of a job that differs between the live job and a plan. None stands for a field that is not there."""

    path: str
    live: Any
    desired: Any = field(name="wanted")  # the key in JSON output
    in_place: bool  # kfjob can change the live job; else the change needs a relaunch


class Backend(Protocol):
    """A place where jobs run."""

    name: ClassVar[BackendName]

    def submit(self, plan: JobPlan) -> JobRef:
        """Start the job: exactly what `compile` makes of the plan.

        Raises:
            AlreadyExists: a job of this name is there, ended or not; nothing was changed.
            Refused, Forbidden, Unreachable: as the class says; nothing was left behind.
        """

    def apply(self, plan: JobPlan) -> JobRef:
        """Change the live job to what the plan says, where that is possible in place.

        Raises:
            NotFound: there is no such job.
            Refused: the change needs a relaunch.
        """

    def get(self, name: str, *, namespace: str) -> JobSnapshot:
        """The job and its pods as they are now.

        Raises:
            NotFound: there is no such job.
        """

    def list(self, *, namespace: str) -> list[JobSnapshot]:
        """All jobs of a namespace, oldest first, without their pods."""

    def watch(self, ref: JobRef) -> Iterator[JobChanged | PodChanged]:
        """The present state of job and pods, then every change.

        Ends after the job has ended or is gone (then with a last `Stopped`).
        """

    def events(self, ref: JobRef) -> builtins.list[KubernetesEvent | WorkloadStatus]:
        """What the cluster has written down of this very job, its pods and its claims, oldest first; and its place in a queue.

        Empty where nothing is written down (this machine) or we may not read it: nothing depends on it but explanations.

        Raises:
            NotFound: there is no such job.
        """

    def logs(self, ref: JobRef, pod: str, wanted: LogRange) -> Iterator[LogLine | LogGap]:
        """Lines of one pod's container, oldest first.

        Raises:
            NotFound: there is no such pod, or it has no log (yet) and `follow` is not set.
        """

    def stop(self, ref: JobRef, *, timeout: float) -> None:
        """End the job if it runs, remove it, and return once its pods are gone and its name is free.

        A job that has ended is removed too. What was put in the place of this very job meanwhile is left alone.

        Raises:
            NotFound: it is gone already.
            WaitTimeout: pods are still there after `timeout` seconds.
        """
