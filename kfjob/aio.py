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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, overload

from kfjob.api import jobs
from kfjob.api import run as sync
from kfjob.base.concurrency import Task

P = ParamSpec("P")
T = TypeVar("T")
Async: TypeAlias = Coroutine[Any, Any, T]
_END: Any = object()


@overload
def _coroutine(function: Callable[P, sync.Run]) -> Callable[P, Async[Run]]: ...
@overload
def _coroutine(function: Callable[P, T]) -> Callable[P, Async[T]]: ...
def _coroutine(function: Callable[P, Any]) -> Callable[P, Async[Any]]:
    """Return a function as a coroutine with the same arguments; instead of a `kfjob.Run` it returns a `Run` of this module."""

    @wraps(function)
    async def call(*args: P.args, **options: P.kwargs) -> Any:
        return _wrap(await _call(function, *args, **options))

    return call


@overload
def _method(method: Callable[Concatenate[sync.Run, P], sync.Run]) -> Callable[Concatenate[Run, P], Async[Run]]: ...
@overload
def _method(method: Callable[Concatenate[sync.Run, P], T]) -> Callable[Concatenate[Run, P], Async[T]]: ...
def _method(method: Callable[Concatenate[sync.Run, P], Any]) -> Callable[Concatenate[Run, P], Async[Any]]:
    """Return a method of `kfjob.Run` as a coroutine of `Run`."""

    @wraps(method)
    async def call(self: Run, /, *args: P.args, **options: P.kwargs) -> Any:
        return _wrap(await _call(method, self._run, *args, **options))

    return call


def _iterator(method: Callable[Concatenate[sync.Run, P], Iterator[T]]) -> Callable[Concatenate[Run, P], AsyncIterator[T]]:
    """Return a method of `kfjob.Run` that yields items as an asynchronous iterator of `Run`."""

    @wraps(method)
    def call(self: Run, /, *args: P.args, **options: P.kwargs) -> AsyncIterator[T]:
        return _iterate(partial(method, self._run, *args, **options))

    return call


def _wrap(result: Any) -> Any:
    return Run(result) if isinstance(result, sync.Run) else result


submit = _coroutine(jobs.submit)
apply = _coroutine(jobs.apply)
attach = _coroutine(jobs.attach)
list_jobs = _coroutine(jobs.list_jobs)
history = _coroutine(jobs.history)
compare = _coroutine(jobs.compare)
stop = _coroutine(jobs.stop)


class Run:
    """One launch of a job; each method is a coroutine or an asynchronous iterator of the method of `kfjob.Run`."""

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
    def namespace(self) -> str:
        """The job's namespace."""
        return self._run.namespace

    @property
    def backend(self) -> str:
        """`kubernetes` or `local`."""
        return self._run.backend

    @property
    def launch(self) -> str:
        """The id of this launch; "" for a job that kfjob did not submit."""
        return self._run.launch

    status = _method(sync.Run.status)
    snapshot = _method(sync.Run.snapshot)
    master = _method(sync.Run.master)
    masters = _iterator(sync.Run.masters)
    progress = _method(sync.Run.progress)
    diagnose = _method(sync.Run.diagnose)
    report = _method(sync.Run.report)
    logs = _iterator(sync.Run.logs)
    events = _method(sync.Run.events)
    follow = _iterator(sync.Run.follow)
    changes = _iterator(sync.Run.changes)
    wait = _method(sync.Run.wait)
    scale = _method(sync.Run.scale)
    suspend = _method(sync.Run.suspend)
    resume = _method(sync.Run.resume)
    stop = _method(sync.Run.stop)
    relaunch = _method(sync.Run.relaunch)
    archive = _method(sync.Run.archive)
    execute = _method(sync.Run.execute)


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
