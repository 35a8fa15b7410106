"""The progress of many jobs at once, for a list: the end of one log of each job, or of a few if that one shows none.

A list must not wait, so the number of jobs, pods and lines is limited, and so is the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kfjob.api.excerpts import TAIL_LINES, read_tail
from kfjob.api.master.cache import recall_pod
from kfjob.api.reader import open_snapshot, open_view
from kfjob.api.target import Target
from kfjob.api.view import advance_to_now
from kfjob.base.common_types import Notify
from kfjob.base.concurrency import Task, map_parallel
from kfjob.base.errors import BackendError, KfjobError, Unreachable
from kfjob.joblog.events import JobPhase, JobSnapshot, PodChanged, PodPhase
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.kinds.registry import identify

SECONDS = 3.0
"""Time for the logs of all jobs."""
MAX_JOBS = 32
"""Newest jobs whose logs are read."""
MAX_PODS = 8
"""Pods of a job to read until one shows progress."""
LINES = 40
"""Last lines of a log. A failure prints more, so the first pod's log is then read further back."""
THREADS = 16
REFRESH_SECONDS = 5.0
"""Time between two lists of `watch_views`."""

JobRow = tuple[JobSnapshot, JobView | None]
"""A job with its newest progress; None where no log was read."""


def watch_views(target: Target, *, namespace: str | None, notify: Notify) -> Iterator[list[JobRow]]:
    """Yield the jobs of a namespace, or with None of all namespaces, with their progress, again and again without an end.

    A cluster that stops answering does not end it: `notify` receives one notice for each outage.

    Raises:
        KfjobError: the first list fails, or a later one for another reason than an outage.
    """
    views: dict[str, JobView | None] = {}
    is_first, is_out = True, False
    while True:
        try:
            jobs = target.backend.list(namespace=namespace)
        except (Unreachable, BackendError) as err:
            if is_first:
                raise
            if not is_out:
                notify(f"{err.title}; the list goes on when it answers again")
            is_out = True
        else:
            is_first = is_out = False
            found = zip(jobs, read_views(target, jobs), strict=True)  # a log that is not read in time keeps its last progress
            views = {job.uid: view or (views.get(job.uid) if job.phase is JobPhase.RUNNING else None) for job, view in found}
            yield [(job, views[job.uid]) for job in jobs]
        time.sleep(REFRESH_SECONDS)


def read_views(target: Target, jobs: Sequence[JobSnapshot], *, seconds: float = SECONDS) -> list[JobView | None]:
    """Return the newest progress of each job; None where no log can be read, or not in time."""
    waiting = (JobPhase.PENDING, JobPhase.SUSPENDED)
    started = [index for index, job in enumerate(jobs) if job.phase not in waiting]
    recent = sorted(started, key=lambda index: -(jobs[index].created or 0))[:MAX_JOBS]
    views: list[JobView | None] = [None] * len(jobs)

    def read(index: int) -> None:
        with suppress(KfjobError):
            views[index] = _read_view(target.change(namespace=jobs[index].namespace), jobs[index])

    with suppress(TimeoutError):
        Task(lambda: map_parallel(read, recent, threads=THREADS, name="logs"), name="list").result(seconds)
    return list(views)  # a late thread may still write


def _read_view(target: Target, job: JobSnapshot) -> JobView:
    reader = open_snapshot(target, job)
    pods = {pod.pod: pod for pod in _list_pods(target, job) if pod.phase is not PodPhase.PENDING or pod.restarts}
    view = reduce_all(open_view(reader), (job.job, *pods.values()))
    for pod, lines in _order_reads(pods, [recall_pod(target, job), *reader.config.workers, *pods]):
        tail, _ = read_tail(reader, pod, lines=lines)
        if (after := reduce_all(view, tail)).training.lines:
            return advance_to_now(after)
    return view


def _list_pods(target: Target, job: JobSnapshot) -> tuple[PodChanged, ...]:
    if target.capabilities.has_api_server:
        job_id, pods = target.cluster.pods(job.name, namespace=job.namespace)
        return pods if job_id == identify(job) else ()
    return target.get_job(job.name).pods


def _order_reads(pods: dict[str, PodChanged], names: Sequence[str]) -> Iterator[tuple[PodChanged, int]]:
    """Yield the pods to read in this order, with the number of lines: the likeliest pod twice, further back."""
    for index, name in enumerate([name for name in dict.fromkeys(names) if name in pods][:MAX_PODS]):
        yield pods[name], LINES
        if not index:
            yield pods[name], TAIL_LINES
