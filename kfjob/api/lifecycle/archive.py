"""What is kept of a job when it goes: its spec, its last state and every pod's log, in the layout of `backends.folder`.

Also the reader of such a folder, of a folder of saved logs, and of the archive as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from kfjob.api.settings import Settings
from kfjob.backends import folder, log_file
from kfjob.backends.base import Backend, JobRef, LogRange
from kfjob.errors import KfjobError, NotFound
from kfjob.events import (
    TRAINING_CONTAINER,
    JobChanged,
    JobPhase,
    JobSnapshot,
    KubernetesEvent,
    LogGap,
    LogLine,
    PodChanged,
    PodPhase,
    WorkloadStatus,
)

AT_ONCE = 8
"""Logs that are fetched at the same time."""
LAST_WORDS_SECONDS = 10.0
"""How long the logs of pods that are gone may take to end."""


class Reader(Protocol):
    """What can be asked of a job that need not be alive: the reading half of a Backend."""

    def logs(
        self, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
    ) -> Iterator[LogLine | LogGap]:
        """As `Backend.logs`."""

    def events(self, ref: JobRef) -> list[KubernetesEvent | WorkloadStatus]:
        """As `Backend.events`."""


def archive_root(settings: Settings) -> Path:
    """Where the jobs are that were stopped, on this machine."""
    return settings.state / "archive"


@contextmanager
def keeping(backend: Backend, ref: JobRef, snapshot: JobSnapshot, root: Path) -> Iterator[Path]:
    """Write all that is known of the job to the archive, then what its pods print while they are ended inside the `with`.

    Yields the folder of this launch. What cannot be read (a pod that never started has no log) is left out.
    """
    launch = snapshot.launch or snapshot.uid or "unnamed"
    place = folder.make_private(folder.launch_folder(root, snapshot.namespace, snapshot.name, launch))
    wanted = [(pod, previous) for pod in snapshot.pods for previous in ((False, True) if pod.restarts else (False,))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = list(pool.map(lambda one: _keep_log(backend, ref, place, one[0].pod, previous=one[1]), wanted))
    folder.write_snapshot(place, snapshot)
    with suppress(KfjobError):  # they only explain; a stop must not fail for want of them
        folder.write_events(place, backend.events(ref))
    last_words = [
        Thread(target=_keep_log, args=(backend, ref, place, pod.pod), kwargs={"after": end}, daemon=True)
        for (pod, previous), end in zip(wanted, ends, strict=True)
        if pod.phase is PodPhase.RUNNING and not previous
    ]
    for thread in last_words:
        thread.start()
    yield place
    deadline = monotonic() + LAST_WORDS_SECONDS
    for thread in last_words:
        thread.join(max(deadline - monotonic(), 0))


def _keep_log(
    backend: Backend, ref: JobRef, place: Path, pod: str, *, previous: bool = False, after: int | None = None
) -> int | None:
    """Write a log, or with `after` go on with it until the pod is gone; the time of its last line."""
    path = folder.log_path(place, pod, previous=previous)
    wanted = LogRange(previous=previous) if after is None else LogRange(since=after + 1, follow=True)
    last = after
    with suppress(NotFound):
        lines = backend.logs(ref, pod, wanted)
        first = next(lines, None)
        if first is None:
            return last
        folder.make_private(path.parent)
        with path.open("wb" if after is None else "ab") as out:
            for line in chain([first], lines):
                if isinstance(line, LogLine):
                    out.write((log_file.stamp(line.time) if line.time is not None else b"") + line.text.encode() + b"\n")
                    last = line.time
    return last


def newest(root: Path, namespace: str, job: str) -> Path:
    """The folder of the job's last launch that was archived.

    Raises:
        NotFound: none was.
    """
    kept = folder.launches(root, namespace, job)
    if not kept:
        raise NotFound(
            f"no job `{job}` in namespace `{namespace}`, and none in the archive", hint="`kfjob list` shows the jobs"
        )
    return kept[-1]


class Archived:
    """A job as a folder holds it: a launch of the archive, or saved logs (`<pod>.log`, `<pod>/<container>.log`)."""

    def __init__(self, place: Path) -> None:
        """Open the folder.

        Raises:
            NotFound: it holds neither a job nor logs.
        """
        if not place.is_dir():
            raise NotFound(f"folder `{place}` does not exist")
        self.place = place
        self._logs = folder.saved_logs(place)
        self._containers: dict[str, str] = {}  # the one that wrote a pod's log, so that its state and its log are told as one
        if not self._logs and not (place / folder.STATUS).exists():
            raise NotFound(f"folder `{place}` holds no logs", hint="expected are `<pod>.log` or `<pod>/<container>.log`")

    def snapshot(self) -> JobSnapshot:
        """What the folder says of the job; of a folder of logs alone, its name and the pods that printed."""
        try:
            kept = folder.read_snapshot(self.place)
        except NotFound:
            pods = tuple(PodChanged(pod=pod, phase=PodPhase.UNKNOWN) for pod in self._logs)
            return JobSnapshot(name=self.place.name, namespace="", job=JobChanged(phase=JobPhase.STOPPED), pods=pods)
        self._containers = {pod.pod: pod.container_id for pod in kept.pods}
        return kept if kept.job.phase.ended else replace(kept, job=replace(kept.job, phase=JobPhase.STOPPED))

    def events(self, ref: JobRef) -> list[KubernetesEvent | WorkloadStatus]:  # noqa: ARG002 - Reader's signature
        """As `Backend.events`; none of a folder of saved logs."""
        return folder.read_events(self.place)

    def logs(
        self,
        ref: JobRef,  # noqa: ARG002 - Reader's signature
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,  # noqa: ARG002 - Reader's signature
    ) -> Iterator[LogLine | LogGap]:
        """As `Backend.logs`; nothing is ever added, so `follow` makes no difference."""
        known = self._logs.get(pod)
        if known is None:
            raise NotFound(f"no log of pod `{pod}` in `{self.place}`")
        path = known
        if log_range.container != TRAINING_CONTAINER:
            path = folder.log_path(self.place, pod, log_range.container, previous=log_range.previous)
        elif log_range.previous:
            path = folder.previous_log(known)
        container_id = "" if log_range.previous else self._containers.get(pod, "")
        try:
            for time, text in log_file.read(path, log_range):
                yield LogLine(pod=pod, text=text, time=time, container=log_range.container, container_id=container_id)
        except FileNotFoundError as err:
            raise NotFound(f"no log of container `{log_range.container}` of pod `{pod}` in `{self.place}`") from err
