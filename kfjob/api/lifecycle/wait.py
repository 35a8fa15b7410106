"""Wait until a job has ended or reached another state, and stop it if it exceeds its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.lifecycle.stop import stop
from kfjob.api.lifecycle.survivors import free_survivors
from kfjob.api.logs.event_poller import add_cluster_events
from kfjob.api.logs.event_stream import stream_events
from kfjob.api.reader import LiveReader, open_snapshot, open_view
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.target import Target
from kfjob.backends.base import JobRef, LineFilterFactory
from kfjob.base.common_types import Notify, ignore_notice
from kfjob.base.errors import Forbidden, JobStopped, JobUnfinished, KfjobError, NotFound, UsageError, WaitTimeout
from kfjob.base.text import join_names
from kfjob.joblog.events import Event, JobChanged, JobPhase, PodPhase, Tick
from kfjob.joblog.prefilter import prefilter_factory
from kfjob.joblog.view.job_view import LIMIT_EXCEEDED, JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.joblog.view.silence import describe_silence, find_silence
from kfjob.joblog.view.watchdog_limits import find_exceeded_limit

GONE_SECONDS = 1.0
"""Time between two looks whether a job is gone."""
GUARD_SECONDS = 60.0
"""Time in which a guard decides about a job that has failed, also if it has just started again itself."""
REPLACE_SECONDS = 30.0
"""Time in which a guard starts the next launch after the pods of a job have ended, also if another guard has to do it."""


def follow_job(
    reader: LiveReader,
    *,
    reads_all: Callable[[str], bool] = lambda _: False,
    on_cut: Callable[[], None] = lambda: None,
    enforces_limits: bool = True,
    notify: Notify = ignore_notice,
) -> Iterator[tuple[JobView, Event]]:
    """Yield every event with the view after it, until the job has ended. Leaving the loop does not stop the job.

    Pods that still run after the job has failed are archived and deleted at the end, unless its spec keeps them; `notify`
    receives what was done.

    Only log lines that the view or a diagnosis can use are read, one line a second of the others, and the last line. Of a pod
    for which `reads_all` is true every line is read; it is asked again for every block of lines. `on_cut` is called at the end
    if the last lines of the logs were not read in time. A caller that decides itself what a limit means turns `enforces_limits`
    off.

    Raises:
        JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
    """
    view = open_view(reader)
    config = reader.config

    def choose_filter(pod: str) -> LineFilterFactory | None:
        return prefilter_factory(config, diagnosis=True, select_all=lambda: reads_all(pod))

    stream = stream_events(reader.target.backend, reader.ref, choose_filter=choose_filter, on_cut=on_cut)
    with add_cluster_events(stream, reader.target.backend, reader.ref) as events:
        for event in events:
            view = reduce(view, event)
            yield view, event
            if enforces_limits and (limit_stop := _enforce_limits(reader.target, reader.ref, view)):
                yield reduce(view, limit_stop.end), limit_stop.end
                raise limit_stop.error
    if view.phase and view.phase.ended:
        end = Tick(time=time.time_ns())  # everything was read
        yield reduce(view, end), end
    if enforces_limits:
        _free_survivors(reader, view.phase, notify)


_MISSED = {"ended": "has not ended", "running": "does not run", "progress": "has printed no progress"}
"""The goals of `wait_for`, as the errors describe a job that has not reached one."""


def wait_for(
    reader: LiveReader,
    goal: str = "ended",
    *,
    timeout: float | None = None,
    on_view: Callable[[JobView], None] | None = None,
    notify: Notify = ignore_notice,
) -> JobPhase:
    """Wait until the job has reached the goal or ended, and return its phase. `on_view` receives the view after each event.

    The goal is `ended`, `running` (all of its pods run) or `progress` (the first line of training progress).

    Logs are read only for `on_view`, and where the goal or a limit needs the progress of training.

    Raises:
        UsageError: there is no such goal.
        WaitTimeout: the job had not reached the goal after `timeout` seconds; it continues.
        JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
        JobUnfinished: the backend reports no more changes.
    """
    if goal not in _MISSED:
        raise UsageError(f"`{goal}` is nothing to wait for", hint=f"it can be {join_names(f'`{name}`' for name in _MISSED)}")
    deadline = None if timeout is None else time.monotonic() + timeout
    view = open_view(reader)
    reads_logs = on_view is not None or goal == "progress" or reader.config.limits.stall is not None
    line_filter = prefilter_factory(reader.config)
    events = stream_events(reader.target.backend, reader.ref, logs=reads_logs, choose_filter=lambda _: line_filter)
    for event in events:
        view = reduce(view, event)
        if on_view:
            on_view(view)
        if (view.phase and view.phase.ended) or _has_reached(goal, view):
            _free_survivors(reader, view.phase, notify)
            return view.phase or JobPhase.PENDING
        if limit_stop := _enforce_limits(reader.target, reader.ref, view):
            raise limit_stop.error
        if deadline is not None and time.monotonic() > deadline:
            title = f"job `{reader.ref.name}` {_MISSED[goal]} after {timeout:g} s"
            raise WaitTimeout(title, cause=f"it is {view.phase or JobPhase.PENDING}", hint="the job continues")
    cause = f"the backend reports no more changes; it was last {view.phase or JobPhase.PENDING}"
    raise JobUnfinished(f"job `{reader.ref.name}` {_MISSED[goal]}", cause=cause)


def _has_reached(goal: str, view: JobView) -> bool:
    if goal == "ended" or view.phase is not JobPhase.RUNNING:
        return False
    if goal == "progress":
        return bool(view.training.lines)
    pods = view.pods.values()
    count = max(len(view.config.workers), 1)
    return sum(pod.phase is PodPhase.RUNNING for pod in pods) >= count


def wait_for_relaunch(reader: LiveReader, *, timeout: float | None = None) -> LiveReader | None:
    """Return the launch with which the guard replaces a job with `recovery` that has failed or was removed.

    None if the guard gives the job up, a person has removed or replaced it, or no guard seems to act.

    Raises:
        WaitTimeout: none of that is known after `timeout` seconds.
    """
    start = time.monotonic()
    limit, latest = start + GUARD_SECONDS, start + STOP_TIMEOUT
    is_gone = False
    while time.monotonic() < min(limit, latest):
        try:
            snapshot = reader.target.get_job(reader.ref.name)
        except NotFound:
            if not is_gone or _has_remains(reader):  # the next launch starts when the pods of this one have ended
                limit, is_gone = time.monotonic() + REPLACE_SECONDS, True
        else:
            if snapshot.uid != reader.ref.uid:
                return open_snapshot(reader.target, snapshot) if snapshot.relaunches else None
            if snapshot.guard_decision:
                return None
        if timeout is not None and time.monotonic() - start > timeout:
            raise WaitTimeout(
                f"the guard of job `{reader.ref.name}` has not acted after {timeout:g} s", hint="the job has ended"
            )
        time.sleep(GONE_SECONDS)
    return None


def _has_remains(reader: LiveReader) -> bool:
    """Return whether pods or other objects of a job that was removed still exist, as far as the user may see them."""
    with suppress(Forbidden):
        return reader.ref.capabilities.has_api_server and reader.target.cluster.has_remains(reader.ref)
    return False


def wait_until_gone(target: Target, job: str, *, timeout: float | None = None) -> None:
    """Wait until no job has this name, so that another one can be submitted under it.

    Raises:
        WaitTimeout: the job still exists after `timeout` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        try:
            snapshot = target.get_job(job)
        except NotFound:
            return
        if deadline is not None and time.monotonic() > deadline:
            hint = f"`kfjob stop {job}` removes it"
            title = f"job `{job}` still exists after {timeout:g} s"
            raise WaitTimeout(title, cause=f"it is {snapshot.job.phase}", hint=hint)
        time.sleep(GONE_SECONDS)


def _free_survivors(reader: LiveReader, phase: JobPhase | None, notify: Notify) -> None:
    """Delete the pods that go on after the failure of their job, unless the guard decides about it."""
    if phase is not JobPhase.FAILED:
        return
    if reader.config.recovery:
        notify(f"the job has `recovery`, so its guard may relaunch it; `kfjob status {reader.ref.name}` shows that")
        return
    try:
        if done := free_survivors(reader):
            notify(done)
    except KfjobError as err:
        notify(f"pods may still run: {err.title}")


class LimitStop(Struct, frozen=True):
    """The stop of a job that exceeded a limit."""

    end: JobChanged
    error: JobStopped


def _enforce_limits(target: Target, ref: JobRef, view: JobView) -> LimitStop | None:
    """Stop the job if it exceeds one of its limits; None if it is within all limits.

    Raises:
        WaitTimeout, Unreachable, Forbidden: the job could not be stopped.
    """
    limit = find_exceeded_limit(view)
    if limit is None or (limit.name == "stall" and view.config.recovery):
        return None  # the guard relaunches a job that stalls
    return stop_with_reason(target, ref, view, limit.reason)


def stop_with_reason(
    target: Target, ref: JobRef, view: JobView, message: str, *, reason: str = LIMIT_EXCEEDED
) -> LimitStop | None:
    """Archive and remove a job that must not go on, and record why as its end; None if its state is unknown.

    Raises:
        WaitTimeout, Unreachable, Forbidden: the job could not be stopped.
    """
    if view.job is None:
        return None
    job = ref.name
    end = replace(view.job, phase=JobPhase.STOPPED, reason=reason, message=message, ended=view.now, time=view.now)
    archived = stop(target, job, uid=ref.uid, end=end)
    hint = f"its logs are in {archived}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    return LimitStop(end, JobStopped(f"job `{job}` was stopped: {message}", cause=_describe_state(view), hint=hint))


def _describe_state(view: JobView) -> str | None:
    """Return what the job did before; None if it only ran."""
    if silence := find_silence(view):
        return describe_silence(silence)
    return view.headline if view.headline != view.phase else None
