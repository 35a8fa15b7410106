"""The Python API as coroutines, for servers and notebooks that run an event loop.

    from kfjob import JobSpec, aio

    run = await aio.submit(JobSpec(…))
    async for view, event in run.follow():
        …
    phase = await run.wait()

Each call runs the function of the same name in a worker thread, with the same arguments and errors. Cancelling a call stops the
waiting and leaves the job alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from kfjob.api import jobs
from kfjob.api import run as sync
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.base.concurrency import Task
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.events import Event, JobPhase, JobSnapshot, KubernetesEvent, LogGap, LogLine, WorkloadStatus
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView

P = ParamSpec("P")
T = TypeVar("T")
_END: Any = object()


async def submit(*args: Any, **options: Any) -> Run:
    """Start a job; see `kfjob.submit`."""
    return Run(await _call(jobs.submit, *args, **options))


async def apply(*args: Any, **options: Any) -> Run:
    """Change a live job in place; see `kfjob.apply`."""
    return Run(await _call(jobs.apply, *args, **options))


async def attach(*args: Any, **options: Any) -> Run:
    """Return the live launch of a job, or its last archived one; see `kfjob.attach`."""
    return Run(await _call(jobs.attach, *args, **options))


async def list_jobs(**options: Any) -> list[JobSnapshot]:
    """Return the jobs of a namespace; see `kfjob.list_jobs`."""
    return await _call(jobs.list_jobs, **options)


async def stop(job: str, **options: Any) -> Path | None:
    """Stop a job and return the folder of its archive; see `kfjob.stop`."""
    return await _call(jobs.stop, job, **options)


class Run:
    """One launch of a job; each method is the coroutine of the method of `kfjob.Run` with the same name."""

    def __init__(self, run: sync.Run) -> None:
        """Take the handle whose methods the coroutines call."""
        self._run = run

    def __repr__(self) -> str:
        """Return one line: name, backend, namespace and launch."""
        return repr(self._run)

    @property
    def name(self) -> str:
        """The job's name."""
        return self._run.name

    @property
    def launch(self) -> str:
        """The id of this launch; "" for a job that kfjob did not submit."""
        return self._run.launch

    async def status(self) -> JobView:
        """Return what the job's state, its logs and the cluster's events show now."""
        return await _call(self._run.status)

    async def snapshot(self) -> JobSnapshot:
        """Return the present state of the job and its pods, without reading logs."""
        return await _call(self._run.snapshot)

    async def master(self, *, timeout: float = 0.0, fresh: bool = False) -> Master:
        """Return the pod that prints progress, and the evidence."""
        return await _call(self._run.master, timeout=timeout, fresh=fresh)

    async def progress(self) -> Training:
        """Return the progress of training."""
        return await _call(self._run.progress)

    async def diagnose(self) -> Diagnosis:
        """Return what failed first, what followed from it, and what to do."""
        return await _call(self._run.diagnose)

    async def report(self) -> str:
        """Return the job as one HTML page."""
        return await _call(self._run.report)

    async def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return what the cluster's controllers recorded about the job."""
        return await _call(self._run.events)

    async def wait(self, *, timeout: float | None = None, check: bool = False) -> JobPhase:
        """Wait until the job has ended and return its final phase."""
        return await _call(self._run.wait, timeout=timeout, check=check)

    async def stop(self, *, timeout: float = STOP_TIMEOUT) -> Path | None:
        """Stop the job, remove it and return the folder of its archive."""
        return await _call(self._run.stop, timeout=timeout)

    async def relaunch(self, **options: Any) -> Run:
        """Stop the job, submit its recorded spec again and return the new launch."""
        return Run(await _call(self._run.relaunch, **options))

    def logs(
        self, pod: str | None = None, *, tail: int | None = None, previous: bool = False, include: str | None = None
    ) -> AsyncIterator[LogLine | LogGap]:
        """Yield the lines that exist now, of one pod or of all pods merged by time; with `include`, those that match it."""
        return _iterate(partial(self._run.logs, pod, tail=tail, previous=previous, include=include))

    def masters(self, *, interval: float = 2.0) -> AsyncIterator[Master]:
        """Yield the pod that prints progress, again whenever another pod takes over, until the job has ended."""
        return _iterate(partial(self._run.masters, interval=interval))

    def follow(self) -> AsyncIterator[tuple[JobView, Event]]:
        """Yield every event with the view after it, until the job has ended."""
        return _iterate(self._run.follow)


async def _call(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Run the call in a daemon thread, which never keeps the process or a cancelled caller waiting."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = call(*args, **options)
        except StopIteration as err:  # a future does not take it
            error = RuntimeError(f"the call ended in {err!r}")
            _resolve(loop, future, partial(future.set_exception, error))
        except BaseException as err:  # noqa: BLE001 - the awaiting coroutine gets it
            _resolve(loop, future, partial(future.set_exception, err))
        else:
            _resolve(loop, future, partial(future.set_result, result))

    Task(run, name="aio")
    return await future


def _resolve(loop: asyncio.AbstractEventLoop, future: asyncio.Future[T], resolve: Callable[[], None]) -> None:
    """Resolve the future in its loop, unless the call was cancelled or the loop is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(lambda: None if future.done() else resolve())


async def _iterate(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Yield the items of a blocking iterator, each from a worker thread, and close the iterator at the end."""
    items = await _call(make)
    lock = threading.Lock()  # an iterator cannot be closed while a thread is in it

    def take() -> T:
        with lock:
            return next(items, _END)

    def close() -> None:
        with lock:
            if close_items := getattr(items, "close", None):
                close_items()

    try:
        while (item := await _call(take)) is not _END:
            yield item
    finally:
        Task(close, name="aio")
