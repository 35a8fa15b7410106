"""Wait until a job has ended, and stop it if it exceeds its limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from kfjob.api.lifecycle.stop import stop
from kfjob.api.logs.event_poller import add_cluster_events
from kfjob.api.logs.event_stream import stream_events
from kfjob.api.reader import LiveReader, open_view
from kfjob.api.target import Target
from kfjob.backends import folder
from kfjob.backends.base import JobRef, LineFilterFactory
from kfjob.base.errors import JobStopped, WaitTimeout
from kfjob.joblog.events import Event, JobChanged, JobPhase, Tick
from kfjob.joblog.prefilter import prefilter_factory
from kfjob.joblog.view.job_view import LIMIT_EXCEEDED, JobView
from kfjob.joblog.view.reduction import reduce
from kfjob.joblog.view.silence import describe_silence, find_silence
from kfjob.joblog.view.watchdog_limits import find_exceeded_limit


def follow_job(
    reader: LiveReader, *, reads_all: Callable[[str], bool] = lambda _: False, on_cut: Callable[[], None] = lambda: None
) -> Iterator[tuple[JobView, Event]]:
    """Yield every event with the view after it, until the job has ended. Leaving the loop does not stop the job.

    Only log lines that the view or a diagnosis can use are read, one line a second of the others, and the last line. Of a pod
    for which `reads_all` is true every line is read; it is asked again for every block of lines. `on_cut` is called at the end
    if the last lines of the logs were not read in time.

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
            if limit_stop := _enforce_limits(reader.target, reader.ref, view):
                yield reduce(view, limit_stop.end), limit_stop.end
                raise limit_stop.error
    if view.phase and view.phase.ended:
        end = Tick(time=time.time_ns())  # everything was read
        yield reduce(view, end), end


def wait_for_end(
    reader: LiveReader, *, timeout: float | None = None, on_view: Callable[[JobView], None] | None = None
) -> JobPhase:
    """Wait until the job has ended and return its final phase. `on_view` receives the view after each event.

    Logs are read only for `on_view`, or where a limit needs the progress of training.

    Raises:
        WaitTimeout: the job had not ended after `timeout` seconds; it continues.
        JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    view = open_view(reader)
    reads_logs = on_view is not None or reader.config.limits.stall is not None
    line_filter = prefilter_factory(reader.config)
    events = stream_events(reader.target.backend, reader.ref, logs=reads_logs, choose_filter=lambda _: line_filter)
    for event in events:
        view = reduce(view, event)
        if on_view:
            on_view(view)
        if view.phase and view.phase.ended:
            break
        if limit_stop := _enforce_limits(reader.target, reader.ref, view):
            raise limit_stop.error
        if deadline is not None and time.monotonic() > deadline:
            title = f"job `{reader.ref.name}` has not ended after {timeout:g} s"
            raise WaitTimeout(title, cause=f"it is {view.phase or JobPhase.PENDING}", hint="the job continues")
    return view.phase or JobPhase.PENDING


@dataclass(frozen=True)
class _LimitStop:
    """The stop of a job that exceeded a limit."""

    end: JobChanged
    error: JobStopped


def _enforce_limits(target: Target, ref: JobRef, view: JobView) -> _LimitStop | None:
    """Stop the job if it exceeds one of its limits; None if it is within all limits.

    Raises:
        WaitTimeout, Unreachable, Forbidden: the job could not be stopped.
    """
    reason = find_exceeded_limit(view)
    if reason is None or view.job is None:
        return None
    job = ref.name
    archived = stop(target, job, uid=ref.uid)
    end = replace(view.job, phase=JobPhase.STOPPED, reason=LIMIT_EXCEEDED, message=reason, ended=view.now, time=view.now)
    if archived:
        _record_end(archived, end)
    hint = f"its logs are in {archived}; `kfjob diagnose {job}` looks for the cause, `kfjob relaunch {job}` starts it again"
    return _LimitStop(end, JobStopped(f"job `{job}` was stopped: {reason}", cause=_describe_state(view), hint=hint))


def _describe_state(view: JobView) -> str | None:
    """Return what the job did before; None if it only ran."""
    if silence := find_silence(view):
        return describe_silence(silence)
    return view.headline if view.headline != view.phase else None


def _record_end(archived: Path, end: JobChanged) -> None:
    """Write into the archived state why the job was stopped, for `status` and `diagnose`."""
    snapshot = folder.read_snapshot(archived)
    job = replace(snapshot.job, phase=end.phase, reason=end.reason, message=end.message)
    folder.write_snapshot(archived, replace(snapshot, job=job))
