"""The guard's processes.

That of a namespace holds the Lease, completes what an earlier guard has begun, and supervises every job with `recovery`. On
this machine each launch has its own, which `kfjob.guard.__main__` starts.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kfjob.api.recorded_config import read_observe_config
from kfjob.api.settings import load_current_settings
from kfjob.api.target import Target, make_target
from kfjob.base.concurrency import Task
from kfjob.base.errors import KfjobError
from kfjob.guard.lease import GuardLease, name_holder
from kfjob.guard.metrics import JobCollector, serve_metrics
from kfjob.guard.notifications import Notifier
from kfjob.guard.records import list_relaunch_records, read_relaunch_record
from kfjob.guard.relaunch import complete, retry
from kfjob.guard.supervision import Supervision
from kfjob.guard.uploads import ArchiveUploads
from kfjob.joblog.events import JobPhase, JobSnapshot
from kfjob.joblog.view.job_view import JobView

LOST_LEASE = 75
"""Exit code of a guard that another one has replaced (EX_TEMPFAIL): its Deployment starts it again, and it waits."""


def run_guard(target: Target, say: Callable[[str], None], *, metrics_port: int | None = None) -> None:
    """Guard the jobs of the target's namespace, without an end.

    Raises:
        UsageError: the metrics cannot use this port.
        Forbidden, Unreachable: the guard cannot read or write its Lease, or cannot watch jobs.
    """
    guard = Guard(target, say)
    if metrics_port is not None:
        serve_metrics(metrics_port, JobCollector(target.namespace, guard.list_views))
    lease = GuardLease(target.cluster, target.namespace, name_holder())
    lease.acquire(say)
    lease.keep(partial(_give_up, say))
    try:
        say(f"guards namespace `{target.namespace}`")
        guard.run()
    finally:
        lease.release()
        guard.notifier.join()


def _give_up(say: Callable[[str], None], error: KfjobError | None) -> None:
    reason = f"the Lease cannot be renewed ({error.title})" if error else "the Lease is lost"
    say(f"{reason}: another guard may act now, so this one ends")
    os._exit(LOST_LEASE)


class Guard:
    """Supervises the jobs of one namespace, each in a thread."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        """Send nothing yet."""
        self._target = target
        self._say = say
        self.notifier = Notifier(os.environ, say)
        self._uploads = ArchiveUploads(target.settings, say) if target.settings.archive else None
        self._supervised: set[str] = set()  # uids
        self._current: dict[tuple[str, str], Supervision] = {}  # by uid and name

    def list_views(self) -> dict[str, JobView]:
        """Return the current view of each supervised job by its name; of two launches, that of the newer one."""
        return {name: supervision.view for (_, name), supervision in self._current.copy().items()}

    def run(self) -> None:
        """Complete what an earlier guard has begun, and watch the namespace."""
        if self._uploads:
            self._uploads.start()
        for record in list_relaunch_records(self._target, self._target.namespace):
            name = record["metadata"]["name"]
            self._say(f"{name}: completes a relaunch that another guard has begun")
            self._supervised.add(read_relaunch_record(record)[0])  # the launch that is replaced
            Task(partial(retry, partial(complete, self._target, record), name, self._say), name="guard-complete")
        for job in self._target.cluster.watch_jobs(self._target.namespace):
            if self._uploads and read_observe_config(job).recovery is not None:
                self._uploads.add(job)
            if job.uid not in self._supervised and is_guarded(job):
                self._supervised.add(job.uid)
                if not job.guard_decision:
                    self._say(f"{job.name}: supervises launch {job.launch}")
                threading.Thread(target=self._supervise, args=[job], name=f"kfjob-guard-{job.name}", daemon=True).start()

    def _supervise(self, job: JobSnapshot) -> None:
        target = self._target.change(job_kind=job.job_kind or None)

        def follow() -> None:
            supervision = Supervision(target, job, self.notifier, self._say, uploads=self._uploads)
            self._current[job.uid, job.name] = supervision
            supervision.run()

        try:
            retry(follow, job.name, self._say)
        finally:
            self._current.pop((job.uid, job.name), None)


def guard_launch(folder: Path, say: Callable[[str], None]) -> None:
    """Guard the launch in a folder of the local backend until it has succeeded, is gone, was replaced or was given up."""
    launch, name, namespace = folder.name, folder.parent.name, folder.parents[1].name
    settings = dataclasses.replace(load_current_settings(), state=folder.parents[3], backend="local", namespace=namespace)
    target = make_target(settings, "local")
    notifier = Notifier(os.environ, say)

    def supervise() -> None:
        job = target.get_job(name)
        if job.launch == launch and is_guarded(job):
            Supervision(target, job, notifier, say).run()

    retry(supervise, name, say)
    notifier.join()


def is_guarded(job: JobSnapshot) -> bool:
    """Return whether the guard has to act if this job fails, or has to free its pods if it has failed."""
    return job.phase not in {JobPhase.SUCCEEDED, JobPhase.STOPPED} and read_observe_config(job).recovery is not None
