"""Who prints progress, with as few questions as will do: the likely pods first, and no further once the evidence is enough.

Enough is a recent progress line of a living pod whose own newest rendezvous result says that it has rank 0. Whatever is less
(no progress yet, another rank prints, an old line) is only told after the tails of all pods were read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from msgspec import Struct, field

from kfjob.api.lifecycle.archive import Reader
from kfjob.api.view import AT_ONCE, TAIL_LINES, read_pod, read_tail, up_to_now, with_head
from kfjob.backends.base import JobRef
from kfjob.errors import NotFound
from kfjob.events import JobSnapshot, LogGap, LogLine, PodChanged, PodPhase
from kfjob.observe.addresses import find_address_owner
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Confidence, Master
from kfjob.observe.view import JobView, reduce_all

RECENT = 60 * 1_000_000_000
"""A progress line that is younger than this is the job's newest: a pod that takes over needs that long to print."""
TRIED = 4
"""Pods that are asked one after the other before all are."""
TOGETHER = 30_000
"""Lines of all pods that are read at once, so that memory stays bounded whatever their number is."""
LEAST = 30


def find(reader: Reader, ref: JobRef, snapshot: JobSnapshot, config: ObserveConfig) -> JobView:
    """A view whose `master` is the answer. It need not know the other pods' logs."""
    return _Search(reader, ref, snapshot, reduce_all(JobView(config=config), (snapshot.job, *snapshot.pods))).run()


class _Search(Struct):
    reader: Reader
    ref: JobRef
    snapshot: JobSnapshot
    view: JobView
    asked: set[str] = field(default_factory=set)

    def run(self) -> JobView:
        for pod in self._likely():
            self.asked.add(pod.pod)
            self._learn(read_pod(self.reader, self.ref, pod))
            if self._is_enough():
                return up_to_now(self.view)
        self._ask_everybody()
        return up_to_now(self.view)

    def _likely(self) -> Iterator[PodChanged]:
        """One pod after the other: the one that what is known points at."""
        pods = {pod.pod: pod for pod in self.snapshot.pods if _has_run(pod)}
        for _ in range(TRIED):
            named = next((name for name in self._pointed_at() if name in pods and name not in self.asked), None)
            if named is None:
                return
            yield pods[named]

    def _pointed_at(self) -> Iterator[str]:
        for pod in self.view.pods.values():
            result = pod.log.result
            if result and result.master_addr:
                yield find_address_owner(result.master_addr, self.view.pods, self.view.config.workers, own=pod.name) or ""
        answer = self.view.master
        if isinstance(answer, Master):
            yield answer.pod
        yield from self.view.config.workers[:1]
        yield from (pod.pod for pod in self.snapshot.pods[:1])

    def _is_enough(self) -> bool:
        answer = self.view.master
        if not isinstance(answer, Master) or answer.confidence is not Confidence.CONFIRMED or answer.group_rank != 0:
            return False
        end = self.snapshot.job.ended if self.snapshot.job.phase.ended else time.time_ns()
        printed = answer.evidence.time
        return printed is not None and end is not None and end - printed < RECENT

    def _ask_everybody(self) -> None:
        """The tails of all, and the heads of those whose tail does not tell what is still needed."""
        rest = [pod for pod in self.snapshot.pods if pod.pod not in self.asked and _has_run(pod)]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tails = dict(zip((pod.pod for pod in rest), pool.map(self._tail, rest), strict=True))
            printing = self._printers(tails)
            cut = [pod for pod in rest if not tails[pod.pod][1] and (pod.pod in printing or not printing)]
            whole = pool.map(lambda pod: self._with_head(pod, tails[pod.pod][0]), cut)
            lines = {pod: tail for pod, (tail, _) in tails.items()} | dict(zip((pod.pod for pod in cut), whole, strict=True))
        for pod in rest:
            self._learn(lines[pod.pod])

    def _printers(self, tails: dict[str, tuple[list[LogLine | LogGap], bool]]) -> set[str]:
        """Those whose tails hold progress that is a trainer's own."""
        view = reduce_all(self.view, (line for tail, _ in tails.values() for line in tail))
        return {pod.name for pod in view.pods.values() if pod.log.reading and pod.log.reading.conclusive}

    def _tail(self, pod: PodChanged) -> tuple[list[LogLine | LogGap], bool]:
        with suppress(NotFound):
            lines = max(min(TAIL_LINES, TOGETHER // len(self.snapshot.pods)), LEAST)
            return read_tail(self.reader, self.ref, pod, lines=lines)
        return [], True

    def _with_head(self, pod: PodChanged, tail: list[LogLine | LogGap]) -> list[LogLine | LogGap]:
        with suppress(NotFound):
            return with_head(self.reader, self.ref, pod, tail)
        return tail

    def _learn(self, lines: Iterable[LogLine | LogGap]) -> None:
        self.view = reduce_all(self.view, lines)


def _has_run(pod: PodChanged) -> bool:
    return pod.phase is not PodPhase.PENDING or pod.restarts > 0
