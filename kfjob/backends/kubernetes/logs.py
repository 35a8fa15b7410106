"""The log of one pod's container: read once, or followed until the pod has ended.

Following survives what ends a stream early: rotation, the time limits of kubelet and API server, restarts of the container, of
the kubelet, of the API server. Where to go on is `cursor`'s to know, and which run of the container to read `runs`'s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from msgspec import Struct

from kfjob.backends import log_file
from kfjob.backends.base import JobRef, LogRange
from kfjob.backends.kubernetes import requests
from kfjob.backends.kubernetes.client import ANSWER_SECONDS, Backoff, Client, Patience
from kfjob.backends.kubernetes.container_runs import ContainerRun, LogPosition, NextRun, NoRun, next_run, select_run
from kfjob.backends.kubernetes.cursor import LogCursor
from kfjob.backends.kubernetes.errors import Broken, unreachable
from kfjob.backends.kubernetes.lines import LineSplitter
from kfjob.backends.kubernetes.objects import Object, container_names, owner, pod_changed, will_have
from kfjob.backends.kubernetes.requests import Request
from kfjob.backends.kubernetes.watch import Change, Feed, Listed, joined
from kfjob.backends.line_filter import LineSelection
from kfjob.errors import BackendError, KfjobError, NotFound, Refused, Unreachable
from kfjob.events import TRAINING_CONTAINER, LogGap, LogLine, PodPhase
from kfjob.spec import api_objects

LINE_BYTES = 1024 * 1024
"""More of one line is not shown, so that a pod cannot fill our memory."""
DRAWN_SECONDS = 1.0
"""A progress bar that is drawn in a line without end is told of so often at most."""
IDLE_SECONDS = 120.0
"""A silent stream is opened anew after this: its other end may be gone without a word."""

_READABLE = {PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED}
_KUBELET_SAYS = ("unable to retrieve container logs", "failed to try resolving symlinks", "failed to watch file", "rpc error:")
"""How the kubelet begins what it writes into a log, without a time, when it cannot read it (v1.34 pkg/kubelet/kuberuntime)."""


class _Raw(Struct, frozen=True):
    """A line as the kubelet sends it."""

    line: bytes
    skipped: int = 0  # lines before it that nobody wants
    wanted: bool = True
    lost: int = 0  # bytes of it that were not kept


class PodLog:
    """One reading of one container's log."""

    def __init__(self, client: Client, ref: JobRef, pod: str, wanted: LogRange) -> None:
        """`ref` is the job that must own the pod."""
        self._client = client
        self._ref = ref
        self._pod = pod
        self._wanted = wanted
        self._cursor = LogCursor(from_first=wanted.tail is not None)
        self._position: LogPosition | None = None  # the run that was read last
        self._first: ContainerRun | None = None  # the run that was read first
        self._shown = ""  # the run that the newest line shown was of
        self._sifting: LineSelection | None = None  # of that run
        self._left = wanted.limit_bytes  # of text, with line ends; None: no limit

    def read(self) -> Iterator[LogLine | LogGap]:
        """The log as it is now.

        Raises:
            NotFound: no such pod, or no such log.
        """
        if known := self._told():
            with contextlib.suppress(Refused, Broken, NotFound):  # it was told too long ago, or the server is busy: ask
                yield from self._stream(known, follow=False)
                return
        backoff = Backoff(attempts=6)
        for attempt in range(1, backoff.attempts + 1):
            pod = self._get_pod()
            try:
                run = select_run(pod, self._wanted.container, previous=self._wanted.previous)
                if run is None:
                    raise self._no_log(pod)
                yield from self._stream(run, follow=False)
            except Broken as lost:
                failure: KfjobError = unreachable(lost, self._client.host)
                hopeless = lost.waited
            except Refused as err:  # the pod's status is ahead of the kubelet, or behind it: a log that was removed
                failure, hopeless = self._no_log(pod, err.cause or err.title), False
            else:
                return
            if hopeless or attempt == backoff.attempts or not self._client.pause(backoff.delay(attempt)):
                raise failure

    def follow(self) -> Iterator[LogLine | LogGap]:
        """The log, until the pod has ended and all is read, or it is gone.

        Raises:
            NotFound: no such pod, and there will be none.
        """
        pod_uid = self._get_pod(wait=True)["metadata"]["uid"]
        patience = Patience(self._client)
        while self._wanting() and not self._client.closed:
            opened = time.monotonic()
            try:
                step = self._await(pod_uid)
                if not isinstance(step, NextRun):
                    return
                for line in self._read_run(step):
                    patience.success()
                    yield line
                if not (self._position and self._position.complete):
                    patience.ended(opened)
            except (Broken, Unreachable, BackendError) as err:
                patience.failure(err)
            patience.pause()

    def _told(self) -> ContainerRun | None:
        """The run that is meant, as the caller's knowledge of the pod tells it."""
        state = self._wanted.state
        if state is None or state.phase not in _READABLE or self._wanted.previous:
            return None
        if self._wanted.container != TRAINING_CONTAINER:  # the state tells of no other
            return None
        return ContainerRun(id=state.container_id, number=state.restarts, ended=state.phase.ended, previous=False)

    def _get_pod(self, *, wait: bool = False) -> Object:
        """The pod. With `wait`, once it is there: right after a submit the operator has not made it yet."""
        try:
            pod = self._client.call(requests.get("pods", self._ref.namespace, self._pod))
        except NotFound:
            if not wait or (to_come := self._pod_to_come()) is None:
                raise
            pod = to_come
        return self._checked(pod)

    def _pod_to_come(self) -> Object | None:
        """The pod, as soon as it is made; None if the job will not have it."""
        job = requests.one(api_objects.PYTORCHJOBS, self._ref.namespace, self._ref.name)
        pod = requests.one("pods", self._ref.namespace, self._pod)
        with contextlib.closing(joined([Feed(self._client, job), Feed(self._client, pod)])) as changes:
            for change in changes:
                thing = _there(change, lambda thing: self._ref.uid in {thing["metadata"]["uid"], owner(thing)})
                if change.resource != api_objects.PYTORCHJOBS and thing:
                    return thing
                if change.resource == api_objects.PYTORCHJOBS and not (thing and will_have(thing, self._pod)):
                    return None
        return None

    def _checked(self, pod: Object) -> Object:
        """The pod, which is this job's and has the container."""
        if owner(pod) != self._ref.uid:
            raise NotFound(f"there is no pod `{self._pod}` of this job", cause="a pod of that name belongs to something else")
        known = container_names(pod)
        if self._wanted.container not in known:
            hint = f"it has {', '.join(f'`{container}`' for container in known)}"
            raise NotFound(f"pod `{self._pod}` has no container `{self._wanted.container}`", hint=hint)
        return pod

    def _no_log(self, pod: Object, cause: str | None = None) -> NotFound:
        if self._wanted.previous:
            title = f"pod `{self._pod}` has no log of a container before the last restart"
            return NotFound(title, cause=cause or "its container was not restarted", hint="leave out `--previous`")
        state = pod_changed(pod, now=0)
        cause = cause or " ".join(filter(None, (state.reason, state.message))) or f"the pod is {state.phase}"
        return NotFound(
            f"pod `{self._pod}` has no log yet", cause=cause, hint="with `--follow` it is shown as soon as there is one"
        )

    def _await(self, pod_uid: str) -> NextRun | NoRun:
        """Wait until there is something to read, or never will be."""
        feed = Feed(self._client, requests.one("pods", self._ref.namespace, self._pod))
        with contextlib.closing(feed.changes()) as changes:
            for change in changes:
                pod = _there(change, lambda pod: pod["metadata"]["uid"] == pod_uid)
                step = NoRun.END if pod is None else next_run(pod, self._wanted.container, self._position)
                if step is not NoRun.WAIT:
                    return step
        return NoRun.END  # the client was closed

    def _read_run(self, step: NextRun) -> Iterator[LogLine | LogGap]:
        """Read one run as far as it goes. A log that is not there (any more) is no error."""
        run = step.run
        if step.missed:
            yield self._gap("the container was restarted again before the log of its last run was read")
        try:
            yield from self._stream(run, follow=not run.ended)
        except NotFound:
            return  # the pod is going; `_await` will see it
        except Refused as err:
            if run.ended:
                yield self._gap(err.cause or err.title)
                self._position = LogPosition(run.id, run.number, complete=True)

    def _stream(self, run: ContainerRun, *, follow: bool) -> Iterator[LogLine | LogGap]:
        """One request, and its new lines. Afterwards `_position` says whether the run was read to its end."""
        self._cursor.resume(same=self._shown == run.id)
        self._first = self._first or run
        if self._wanted.sieve and (self._position is None or self._position.id != run.id):
            self._sifting = LineSelection(self._wanted.sieve())
        elif self._sifting:
            self._sifting.resume()
        self._position = LogPosition(run.id, run.number, complete=False)
        stream = self._client.open(self._request(run, follow=follow), read_timeout=IDLE_SECONDS if follow else ANSWER_SECONDS)
        splitter = LineSplitter(LINE_BYTES)
        drawn, again = b"", time.monotonic() + DRAWN_SECONDS  # what was told before comes again at first
        try:
            for piece in stream.chunks():
                for line in self._lines(splitter, piece):
                    yield from self._show(run, line)
                    if not self._wanting():
                        return
                if follow and self._sifting and splitter.drawn not in {b"", drawn} and time.monotonic() >= again:
                    drawn, again = splitter.drawn, time.monotonic() + DRAWN_SECONDS
                    yield self._open_line(run, drawn)
            for kept in self._sifting.rest() if self._sifting else ():
                yield from self._show(run, _Raw(*kept))
            if not follow and (rest := splitter.rest()):  # else it is not known to be whole
                yield from self._show(run, _Raw(rest[0], lost=rest[1]))
        finally:
            stream.close()
        self._position = LogPosition(run.id, run.number, complete=run.ended)

    def _lines(self, splitter: LineSplitter, piece: bytes) -> Iterator[_Raw]:
        """The lines that `piece` completes, without those that nobody wants."""
        if self._sifting is None:
            yield from (_Raw(line, lost=lost) for line, lost in splitter.take(piece))
            return
        block = splitter.block(piece)
        while block:
            line, _, others = block.partition(b"\n")
            time_ns, _ = log_file.parse(line)
            if not self._cursor.may_repeat(time_ns):
                break
            block = others
            if time_ns is None or self._sifting.wants(line):
                yield _Raw(line)
            else:
                self._cursor.pass_by(time_ns)
        yield from (_Raw(*kept) for kept in self._sifting.take(block))

    def _request(self, run: ContainerRun, *, follow: bool) -> Request:
        nothing_yet = self._first is not None and run.id == self._first.id and self._cursor.newest is None
        return requests.pod_log(
            self._ref.namespace,
            self._pod,
            container=self._wanted.container,
            tail=self._wanted.tail if nothing_yet else None,
            since=self._wanted.since if self._cursor.since is None else self._cursor.since,
            previous=run.previous,
            follow=follow,
        )

    def _show(self, run: ContainerRun, raw: _Raw) -> Iterator[LogLine | LogGap]:
        at, text = log_file.parse(raw.line)
        if at is None and text.startswith(_KUBELET_SAYS):
            raise Refused(text)
        if at is not None:
            if self._wanted.since is not None and at < self._wanted.since:
                return
            before = self._cursor.newest
            if not raw.wanted:
                self._cursor.pass_by(at)
            elif not self._cursor.is_new(at):
                return
            self._shown = run.id
            if self._cursor.gap:
                yield LogGap(pod=self._pod, container_id=run.id, after=before, reason="the log was rotated before it was read")
        if raw.lost:
            text += f" … ({raw.lost} more bytes of this line are not shown)"
        if self._fits(text):
            container = self._wanted.container
            yield LogLine(pod=self._pod, text=text, time=at, container=container, container_id=run.id, skipped=raw.skipped)

    def _open_line(self, run: ContainerRun, drawn: bytes) -> LogLine:
        """What stands in a line that has no end yet. The cursor does not count it: the whole line comes later."""
        text = drawn.decode("utf-8", errors="replace")
        container = self._wanted.container
        return LogLine(pod=self._pod, text=text, time=time.time_ns(), container=container, container_id=run.id, open=True)

    def _fits(self, text: str) -> bool:
        if self._left is None:
            return True
        self._left -= len(text.encode()) + 1
        return self._left >= 0

    def _wanting(self) -> bool:
        return self._left is None or self._left > 0

    def _gap(self, reason: str) -> LogGap:
        missing = self._position.id if self._position else ""
        return LogGap(pod=self._pod, container_id=missing, after=self._cursor.newest, reason=reason)


def _there(change: Change, is_it: Callable[[Object], bool]) -> Object | None:
    """The one object that `change` says is there, None if it is gone."""
    things = change.items if isinstance(change, Listed) else [] if change.deleted else [change.thing]
    return next(filter(is_it, things), None)
