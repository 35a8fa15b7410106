"""The log of one pod's container: read once, or followed until the pod has ended.

Following continues after everything that ends a stream early: log rotation, the time limits of kubelet and API server, and
restarts of the container, the kubelet or the API server. `cursor` decides where to resume, `container_runs` which run to read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import overload

from kfjob.backends import log_file
from kfjob.backends.base import JobRef, LineFilterFactory, LogEvent, LogRange
from kfjob.backends.line_filter import FilteredLines, RawLine
from kfjob.backends.line_splitter import LINE_BYTES, LineSplitter, describe_dropped
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import BackendError, KfjobError, NodeUnreachable, NotFound, Refused, Unreachable
from kfjob.base.http import ConnectionLost, backoff
from kfjob.base.units import SECOND
from kfjob.cluster import requests
from kfjob.cluster.client import Client, RetryPolicy
from kfjob.cluster.container_runs import ContainerRun, LogPosition, NextRun, NoRun, next_run, select_run
from kfjob.cluster.cursor import LogCursor
from kfjob.cluster.errors import make_unreachable
from kfjob.cluster.pods import container_names, pod_changed
from kfjob.cluster.requests import Request
from kfjob.cluster.watch import Change, ObjectWatch, merge_watches
from kfjob.joblog.events import TRAINING_CONTAINER, LinesSkipped, LogGap, LogLine, OpenLine, PodChanged, PodPhase
from kfjob.kinds.registry import find_kind, identify

OPEN_LINE_SECONDS = 1.0
"""Minimum time between two `OpenLine` events of a container."""
IDLE_SECONDS = 120.0
"""Silence of a followed log after which it is opened again; its other end may be gone without notice."""
READ_SECONDS = 40.0
"""Silence of a log that is not followed after which it is given up."""
ATTEMPTS = 6
"""Attempts to read a log that is not followed: the server is busy, or the pod's status is newer than the kubelet's."""

LATE_START = 15 * 60 * SECOND
"""Time after the start of a container from which on the beginning of its log is in doubt: agents print within seconds."""

_PHASES_WITH_LOG = {PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED}
_KUBELET_ERRORS = (
    "unable to retrieve container logs",
    "failed to try resolving symlinks",
    "failed to watch file",
    "rpc error:",
)
"""The beginnings of what the kubelet writes into a log that it cannot read (v1.34 pkg/kubelet/kuberuntime), without a time."""


@overload
def read_pod_log(
    client: Client, ref: JobRef, pod: str, log_range: LogRange, *, pod_state: PodChanged | None = None
) -> Iterator[LogLine | LogGap]: ...
@overload
def read_pod_log(
    client: Client, ref: JobRef, pod: str, log_range: LogRange, *, line_filter: LineFilterFactory
) -> Iterator[LogEvent]: ...
def read_pod_log(
    client: Client,
    ref: JobRef,
    pod: str,
    log_range: LogRange,
    *,
    pod_state: PodChanged | None = None,
    line_filter: LineFilterFactory | None = None,
) -> Iterator[LogEvent]:
    """Yield the lines of one pod's container, as `Backend.logs` and `Backend.filtered_logs` describe it."""
    log = PodLog(client, ref, pod, log_range, pod_state=pod_state, line_filter=line_filter)
    return log.follow() if log_range.follow and not log_range.previous else log.read()


class PodLog:
    """One reading of one container's log."""

    def __init__(
        self,
        client: Client,
        ref: JobRef,
        pod: str,
        log_range: LogRange,
        *,
        pod_state: PodChanged | None = None,
        line_filter: LineFilterFactory | None = None,
    ) -> None:
        """`ref` is the job that must own the pod."""
        self._client = client
        self._ref = ref
        self._pod = pod
        self._range = log_range
        self._kind = find_kind(ref.job_kind)
        is_training = log_range.container == TRAINING_CONTAINER
        self._container = self._kind.training_container if is_training else log_range.container
        self._pod_state = pod_state
        self._started = pod_state.started if pod_state else None  # of the training container
        self._line_filter = line_filter
        self._cursor = LogCursor(from_first=log_range.tail is not None)
        self._position: LogPosition | None = None  # the run read last
        self._first: ContainerRun | None = None  # the run read first
        self._last_run_id = ""  # the run of the newest line that was yielded
        self._filtered: FilteredLines | None = None  # of the run at `_position`
        self._bytes_left = log_range.limit_bytes  # of text, with line ends; None: no limit

    def read(self) -> Iterator[LogEvent]:
        """Yield the log as it is now.

        Raises:
            NotFound: the pod or the log does not exist.
        """
        if run := self._run_of_pod_state():
            with contextlib.suppress(Refused, ConnectionLost, NotFound):  # the state is outdated, or a server is busy
                yield from self._stream(run, follow=False)
                return
        for attempt in range(1, ATTEMPTS + 1):
            pod = self._get_pod()
            try:
                run = select_run(pod, self._container, previous=self._range.previous)
                if run is None:
                    raise self._no_log(pod)
                yield from self._stream(run, follow=False)
            except ConnectionLost as lost:
                failure: KfjobError = make_unreachable(lost, self._client.host)
                is_final = lost.timed_out
            except Refused as err:  # the pod's status is newer than the kubelet's, or older: its log was removed
                failure, is_final = self._no_log(pod, err.cause or err.title), False
            except NodeUnreachable as err:  # a kubelet that restarts refuses connections; a lost machine does not answer
                failure, is_final = err, "refused" not in (err.cause or "")
            else:
                return
            if is_final or attempt == ATTEMPTS or not self._client.pause(backoff(attempt)):
                raise failure

    def follow(self) -> Iterator[LogEvent]:
        """Yield the log until the pod has ended and all of it is read, or the pod is deleted.

        Raises:
            NotFound: the pod does not exist, and the job will not have it.
        """
        pod_uid = self._get_pod(wait=True)["metadata"]["uid"]
        retries = RetryPolicy(self._client)
        while self._has_room() and not self._client.closed:
            retries.begin()
            try:
                step = self._wait_for_run(pod_uid)
                if not isinstance(step, NextRun):
                    return
                for event in self._read_run(step):
                    retries.success()
                    yield event
                if not (self._position and self._position.complete):
                    retries.ended()
            except NodeUnreachable:  # until the node is back, or its pod is removed
                retries.ended()
            except (ConnectionLost, Unreachable, BackendError) as err:
                retries.failure(err)
            retries.pause()

    def _run_of_pod_state(self) -> ContainerRun | None:
        """Return the run to read according to the pod state that the caller has read."""
        state = self._pod_state
        if state is None or state.phase not in _PHASES_WITH_LOG or self._range.previous:
            return None
        if self._range.container != TRAINING_CONTAINER:  # the state describes this container only
            return None
        return ContainerRun(id=state.container_id, number=state.restarts, ended=state.phase.ended, previous=False)

    def _get_pod(self, *, wait: bool = False) -> JsonObject:
        """Return the pod. With `wait`, wait for it: right after a submit the operator has not created it yet."""
        try:
            pod = self._client.call(requests.get("pods", self._ref.namespace, self._pod))
        except NotFound:
            if not wait or (new_pod := self._wait_for_pod()) is None:
                raise
            pod = new_pod
        self._check_pod(pod)
        return pod

    def _wait_for_pod(self) -> JsonObject | None:
        """Return the pod once the operator has created it; None if the job will not have it."""
        job = requests.select_job(self._kind, self._ref.namespace, self._ref.name)
        pod = requests.select_object("pods", self._ref.namespace, self._pod)
        watches = [ObjectWatch(self._client, job), ObjectWatch(self._client, pod)]
        with contextlib.closing(merge_watches(watches)) as changes:
            for change in changes:
                item = _find_item(change, self._belongs_to_job)
                if change.resource != self._kind.resource and item:
                    return item
                if change.resource == self._kind.resource and not (item and self._kind.will_have_pod(item, self._pod)):
                    return None
        return None

    def _belongs_to_job(self, item: JsonObject) -> bool:
        """Return whether an object is the job, or one of its pods."""
        return self._ref.uid == item["metadata"]["uid"] or self._kind.find_job_id(item) == identify(self._ref)

    def _check_pod(self, pod: JsonObject) -> None:
        """Check that the pod belongs to this job and has the container."""
        if self._kind.find_job_id(pod) != identify(self._ref):
            raise NotFound(f"there is no pod `{self._pod}` of this job", cause="a pod of that name belongs to something else")
        self._started = pod_changed(self._kind, pod, now=0).started
        containers = container_names(pod)
        if self._container not in containers:
            hint = f"it has {', '.join(f'`{container}`' for container in containers)}"
            raise NotFound(f"pod `{self._pod}` has no container `{self._container}`", hint=hint)

    def _no_log(self, pod: JsonObject, cause: str | None = None) -> NotFound:
        if self._range.previous:
            title = f"pod `{self._pod}` has no log of a container before the last restart"
            return NotFound(title, cause=cause or "its container was not restarted", hint="leave out `--previous`")
        state = pod_changed(self._kind, pod, now=0)
        cause = cause or " ".join(filter(None, (state.reason, state.message))) or f"the pod is {state.phase}"
        return NotFound(
            f"pod `{self._pod}` has no log yet", cause=cause, hint="with `--follow` it is shown as soon as there is one"
        )

    def _wait_for_run(self, pod_uid: str) -> NextRun | NoRun:
        """Wait until there is a run to read, or there will be none."""
        watch = ObjectWatch(self._client, requests.select_object("pods", self._ref.namespace, self._pod))
        with contextlib.closing(watch.changes()) as changes:
            for change in changes:
                pod = _find_item(change, lambda pod: pod["metadata"]["uid"] == pod_uid)
                step = NoRun.END if pod is None else next_run(pod, self._container, self._position)
                if step is not NoRun.WAIT:
                    return step
        return NoRun.END  # the client was closed

    def _read_run(self, step: NextRun) -> Iterator[LogEvent]:
        """Read one run as far as it goes. A missing log is no error."""
        run = step.run
        if step.missed:
            yield self._gap("the container was restarted again before the log of its last run was read")
        try:
            yield from self._stream(run, follow=not run.ended)
        except NodeUnreachable:
            raise
        except NotFound:
            return  # the pod is being deleted; `_wait_for_run` handles it
        except Refused as err:
            if run.ended:
                yield self._gap(err.cause or err.title)
                self._position = LogPosition(run.id, run.number, complete=True)

    def _stream(self, run: ContainerRun, *, follow: bool) -> Iterator[LogEvent]:
        """Send one request, and yield its new lines. Afterwards `_position` shows whether the run was read to its end."""
        self._cursor.resume(same=self._last_run_id == run.id)
        self._first = self._first or run
        if self._line_filter and (self._position is None or self._position.id != run.id):
            self._filtered = FilteredLines(self._line_filter())
        elif self._filtered:
            self._filtered.resume()
        self._position = LogPosition(run.id, run.number, complete=False)
        request = self._request(run, follow=follow)
        stream = self._client.open(request, read_seconds=IDLE_SECONDS if follow else READ_SECONDS)
        splitter = LineSplitter(LINE_BYTES)
        drawn, next_report = b"", time.monotonic() + OPEN_LINE_SECONDS  # a resumed log begins with states of before
        try:
            for piece in stream.chunks():
                for line in self._take_lines(splitter, piece):
                    yield from self._report(run, line)
                    if not self._has_room():
                        return
                if follow and self._filtered and splitter.drawn not in {b"", drawn} and time.monotonic() >= next_report:
                    drawn, next_report = splitter.drawn, time.monotonic() + OPEN_LINE_SECONDS
                    yield self._open_line(run, drawn)
            for line in self._filtered.take_last() if self._filtered else ():
                yield from self._report(run, line)
            if not follow and (rest := splitter.take_rest()):  # a followed line without an end may be incomplete
                yield from self._report(run, RawLine(rest[0], truncated=rest[1]))
        finally:
            stream.close()
        self._position = LogPosition(run.id, run.number, complete=run.ended)

    def _take_lines(self, splitter: LineSplitter, piece: bytes) -> Iterator[RawLine]:
        """Yield the lines that `piece` completes, without those that the filter leaves out."""
        if self._filtered is None:
            yield from (RawLine(line, truncated=truncated) for line, truncated in splitter.take(piece))
            return
        block = splitter.take_block(piece)
        while block:
            line, _, rest = block.partition(b"\n")
            timestamp, _ = log_file.parse_line(line)
            if not self._cursor.may_repeat(timestamp):
                break
            block = rest
            if timestamp is None or self._filtered.selects(line):
                yield RawLine(line)
            else:
                self._cursor.pass_by(timestamp)
        yield from self._filtered.take(block)

    def _request(self, run: ContainerRun, *, follow: bool) -> Request:
        is_start = self._first is not None and run.id == self._first.id and self._cursor.newest is None
        return requests.pod_log(
            self._ref.namespace,
            self._pod,
            container=self._container,
            tail=self._range.tail if is_start else None,
            since=self._range.since if self._cursor.since is None else self._cursor.since,
            previous=run.previous,
            follow=follow,
        )

    def _report(self, run: ContainerRun, raw: RawLine) -> Iterator[LogEvent]:
        """Yield the line if it is new and in the range; a gap or skipped lines before it come first."""
        timestamp, text = log_file.parse_line(raw.line)
        if timestamp is None and text.startswith(_KUBELET_ERRORS):
            raise Refused(text)
        container = self._range.container
        if timestamp is not None:
            if self._range.since is not None and timestamp < self._range.since:
                return
            before = self._cursor.newest
            if not raw.selected:
                self._cursor.pass_by(timestamp)
            elif not self._cursor.is_new(timestamp):
                return
            self._last_run_id = run.id
            yield from self._check_beginning(run, timestamp, is_first=before is None and not raw.skipped)
            if self._cursor.take_gap():
                yield LogGap(pod=self._pod, container_id=run.id, after=before, reason="the log was rotated before it was read")
        if raw.truncated:
            text += describe_dropped(raw.truncated)
        if self._takes(text):
            if raw.skipped:
                yield LinesSkipped(pod=self._pod, count=raw.skipped, container=container, container_id=run.id)
            yield LogLine(pod=self._pod, text=text, time=timestamp, container=container, container_id=run.id)

    def _check_beginning(self, run: ContainerRun, timestamp: int, *, is_first: bool) -> Iterator[LogGap]:
        """Yield a gap if the first line of a whole log is much later than the start of its container."""
        is_whole = self._range.tail is None and self._range.since is None and not run.previous
        if not (is_first and is_whole) or self._range.container != TRAINING_CONTAINER or self._started is None:
            return
        if (delay := timestamp - self._started) > LATE_START:
            minutes = delay // (60 * SECOND)
            reason = (
                f"the log begins {minutes} min after its container started; the kubelet may have rotated earlier lines away"
            )
            yield LogGap(pod=self._pod, container_id=run.id, after=self._started, reason=reason)

    def _open_line(self, run: ContainerRun, drawn: bytes) -> OpenLine:
        """Return the state of a progress bar. The cursor does not count it: the whole line comes later."""
        text = drawn.decode("utf-8", errors="replace")
        container = self._range.container
        return OpenLine(pod=self._pod, text=text, time=time.time_ns(), container=container, container_id=run.id)

    def _takes(self, text: str) -> bool:
        """Return whether the line fits in the range's limit, and count it."""
        if self._bytes_left is None:
            return True
        self._bytes_left -= len(text.encode()) + 1
        return self._bytes_left >= 0

    def _has_room(self) -> bool:
        return self._bytes_left is None or self._bytes_left > 0

    def _gap(self, reason: str) -> LogGap:
        last_id = self._position.id if self._position else ""
        return LogGap(pod=self._pod, container_id=last_id, after=self._cursor.newest, reason=reason)


def _find_item(change: Change, matches: Callable[[JsonObject], bool]) -> JsonObject | None:
    """Return the matching object of a change; None if it is deleted."""
    return next(filter(matches, change.present), None)
