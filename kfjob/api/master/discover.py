"""Find the pod that prints progress with few requests: the likely pods first, until the evidence is sufficient.

Sufficient evidence is a recent progress line of a running pod whose own newest rendezvous result has rank 0. Weaker evidence
(no progress yet, another rank prints, an old line) is an answer only after the tails of all pods were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from msgspec import Struct, field

from kfjob.api.excerpts import TAIL_LINES, Line, add_head, read_excerpt, read_tail
from kfjob.api.reader import JobReader, open_view
from kfjob.api.view import THREADS, advance_to_now, read_view
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import NotFound, WaitTimeout
from kfjob.base.units import SECOND
from kfjob.joblog.events import JobSnapshot, PodChanged, PodPhase
from kfjob.joblog.master.discovery import find_address_owner
from kfjob.joblog.master.evidence import Confidence, Master, NoMaster
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

T = TypeVar("T")

RECENT = 60 * SECOND
"""A progress line that is younger than this is the job's newest: a pod that takes over needs that long to print."""
LIKELY_PODS = 4
"""Pods to read one after the other before reading all of them."""
TOTAL_LINES = 30_000
"""Lines to read of all pods together, so that memory stays bounded for any number of pods."""
MIN_LINES = 30
POLL_SECONDS = 1.0


class Search(Struct, frozen=True):
    """One search: the view at its end, and the snapshot at its beginning. Other pods' logs may be unread."""

    snapshot: JobSnapshot
    view: JobView


class Discovery(Struct, frozen=True):
    """The pod that prints progress, and the snapshot that the search began with."""

    snapshot: JobSnapshot
    master: Master


def search(reader: JobReader) -> Search:
    """Look once for the pod that prints progress.

    Raises:
        NotFound: the job is gone.
    """
    snapshot = reader.snapshot()
    if reader.archived:
        return Search(snapshot, read_view(reader))
    explanations = () if snapshot.pods else reader.events()
    view = reduce_all(open_view(reader), (snapshot.job, *snapshot.pods, *explanations))
    return Search(snapshot, _LogSearch(reader, snapshot, view).run())


def discover_master(reader: JobReader, *, timeout: float = 0.0) -> Discovery:
    """Find the pod that prints progress. With a `timeout` (seconds), search again until the answer is more than a prediction.

    Raises:
        NoEvidence: nothing shows which pod prints progress.
        WaitTimeout: after `timeout` seconds there is still no evidence, or the job ended without any.
    """
    job, deadline = reader.ref.name, time.monotonic() + timeout
    while True:
        result = search(reader)
        view, master = result.view, result.view.master
        final = timeout == 0 or not view.running
        if isinstance(master, Master) and (final or master.confidence is not Confidence.PREDICTED):
            return Discovery(result.snapshot, master)
        if isinstance(master, NoMaster) and final:
            raise master.to_error(job, view.missing_pods if not view.pods else "")
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                f"no master of `{job}` after {timeout:g} s", cause=view.headline, hint=f"`kfjob status {job}` shows its pods"
            )
        time.sleep(POLL_SECONDS)


def watch_masters(reader: JobReader, *, interval: float = 2.0) -> Iterator[Master]:
    """Yield the pod that prints progress, again whenever another pod takes over or the evidence improves, until the job ends.

    `interval` is in seconds.
    """
    last = None
    while True:
        try:
            result = search(reader)
        except NotFound:
            return
        master = result.view.master
        if isinstance(master, Master) and (master.pod, master.confidence) != last:
            last = (master.pod, master.confidence)
            yield master
        if reader.archived or result.snapshot.job.phase.ended:
            return
        time.sleep(interval)


class _LogSearch(Struct):
    reader: JobReader
    snapshot: JobSnapshot
    view: JobView
    read_pods: set[str] = field(default_factory=set)

    def run(self) -> JobView:
        for pod in self._likely_pods():
            self.read_pods.add(pod.pod)
            self._add(read_excerpt(self.reader, pod))
            if self._has_sufficient_evidence():
                return advance_to_now(self.view)
        self._read_remaining_pods()
        return advance_to_now(self.view)

    def _likely_pods(self) -> Iterator[PodChanged]:
        """Yield the pod that the current evidence indicates, then the next one."""
        pods = {pod.pod: pod for pod in self.snapshot.pods if _has_run(pod)}
        for _ in range(LIKELY_PODS):
            name = next((name for name in self._candidates() if name in pods and name not in self.read_pods), None)
            if name is None:
                return
            yield pods[name]

    def _candidates(self) -> Iterator[str]:
        for pod in self.view.pods.values():
            result = pod.log.result
            if result and result.master_addr:
                yield find_address_owner(result.master_addr, self.view.pods, self.view.config.workers, own=pod.name) or ""
        if isinstance(self.view.master, Master):
            yield self.view.master.pod
        yield from self.view.config.workers[:1]
        yield from (pod.pod for pod in self.snapshot.pods[:1])

    def _has_sufficient_evidence(self) -> bool:
        master = self.view.master
        if not isinstance(master, Master) or master.confidence is not Confidence.CONFIRMED or master.group_rank != 0:
            return False
        now = self.snapshot.job.ended if self.snapshot.job.phase.ended else time.time_ns()
        return master.evidence.time is not None and now is not None and now - master.evidence.time < RECENT

    def _read_remaining_pods(self) -> None:
        """Read the tails of all other pods, and the heads of those whose tail does not hold what is still needed."""
        pods = [pod for pod in self.snapshot.pods if pod.pod not in self.read_pods and _has_run(pod)]
        tails = dict(zip((pod.pod for pod in pods), _read_parallel(self._read_tail, pods), strict=True))
        printing = self._printing_pods(line for tail, _ in tails.values() for line in tail)
        incomplete = [pod for pod in pods if not tails[pod.pod][1] and (pod.pod in printing or not printing)]
        longer = _read_parallel(lambda pod: self._add_head(pod, tails[pod.pod][0]), incomplete)
        lines = {name: tail for name, (tail, _) in tails.items()}
        lines |= dict(zip((pod.pod for pod in incomplete), longer, strict=True))
        for pod in pods:
            self._add(lines[pod.pod])

    def _printing_pods(self, lines: Iterable[Line]) -> set[str]:
        """Return the pods whose lines hold the progress of a known trainer."""
        view = reduce_all(self.view, lines)
        return {pod.name for pod in view.pods.values() if pod.log.reading and pod.log.reading.conclusive}

    def _read_tail(self, pod: PodChanged) -> tuple[list[Line], bool]:
        with suppress(NotFound):
            lines = max(min(TAIL_LINES, TOTAL_LINES // len(self.snapshot.pods)), MIN_LINES)
            return read_tail(self.reader, pod, lines=lines)
        return [], True

    def _add_head(self, pod: PodChanged, tail: list[Line]) -> list[Line]:
        with suppress(NotFound):
            return add_head(self.reader, pod, tail)
        return tail

    def _add(self, events: Iterable[Line | PodChanged]) -> None:
        self.view = reduce_all(self.view, events)


def _read_parallel(call: Callable[[PodChanged], T], pods: list[PodChanged]) -> list[T]:
    return map_parallel(call, pods, threads=THREADS, name="logs")


def _has_run(pod: PodChanged) -> bool:
    return pod.phase is not PodPhase.PENDING or pod.restarts > 0
