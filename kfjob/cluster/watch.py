"""Lists and watches as one stream of changes, which survives lost connections, expired versions and server restarts.

An `ObjectWatch` reads one selection of objects, `merge_watches` merges several, `JobState` (pure) makes events of the changes.
"""

from __future__ import annotations

import queue
from collections.abc import Generator, Iterator, Sequence
from functools import partial

from msgspec import Struct, ValidationError, json
from msgspec.structs import replace

from kfjob.backends.line_splitter import split_lines
from kfjob.base.common_types import JsonObject
from kfjob.base.concurrency import Task
from kfjob.base.errors import BackendError, Unreachable
from kfjob.base.http import ConnectionLost, Stream
from kfjob.base.parsing import ParseError, decode_json
from kfjob.cluster.client import Client, RetryPolicy
from kfjob.cluster.errors import Expired, make_error
from kfjob.cluster.pods import pod_changed, use_running_pods
from kfjob.cluster.requests import WATCH_SECONDS, Request, Selection
from kfjob.cluster.responses import check_item
from kfjob.joblog.events import ETCD_CONTAINER, JobChanged, JobPhase, PodChanged, PodPhase, StateEvent, StoreChanged
from kfjob.kinds.base import JobKind
from kfjob.objects.reading import Malformed, find_owner_uid
from kfjob.objects.shapes.meta import WatchEventShape, read_version

OBJECT_BYTES = 16 * 1024 * 1024
"""Size of a watch event; etcd stores objects of at most 1.5 MB."""
READ_TIMEOUT_MARGIN = 30
"""Seconds after the end of a watch in which the server must close it; until then bookmarks come."""


class ListedObjects(Struct, frozen=True):
    """All objects that exist now; every other object is deleted."""

    resource: str
    present: list[JsonObject]
    name: str = ""  # set if only one object can match the selection


class ItemChange(Struct, frozen=True):
    """One object was added, changed or deleted."""

    resource: str
    item: JsonObject
    deleted: bool
    name: str = ""  # as in `ListedObjects`

    @property
    def present(self) -> list[JsonObject]:
        """The object, unless it was deleted."""
        return [] if self.deleted else [self.item]


Change = ListedObjects | ItemChange


class ObjectWatch:
    """One selection of objects: a list, then every change. One thread reads it, any thread may close it."""

    def __init__(self, client: Client, selection: Selection) -> None:
        """Send nothing yet."""
        self._client = client
        self._selection = selection
        self._version = ""  # the resource version to watch from; "": list first
        self._stream: Stream | None = None
        self._closed = False

    def list(self) -> ListedObjects:
        """Return the objects that exist now; `changes` continues from here."""
        response = self._client.call(self._selection.list_request())
        self._version = read_version(response)
        return ListedObjects(self._selection.resource, response.get("items") or [], self._selection.name)

    def changes(self) -> Generator[Change]:
        """Yield every change after `list` (without it: the list, then every change), until this or the client is closed.

        Raises:
            KfjobError: the API server refuses, or does not answer for too long.
        """
        retries = RetryPolicy(self._client)
        while not (self._closed or self._client.closed):
            retries.begin()
            try:
                if not self._version:
                    snapshot = self.list()
                    retries.success()
                    yield snapshot
                for change in self._watch_once():
                    retries.success()
                    yield change
                retries.ended()
            except Malformed:
                raise
            except Expired as err:
                self._version = ""
                retries.failure(err)
            except (ConnectionLost, Unreachable, BackendError) as err:
                retries.failure(err)
            retries.pause()

    def close(self) -> None:
        """End `changes`, also while another thread waits in it."""
        self._closed = True
        if self._stream:
            self._stream.shut()

    def _watch_once(self) -> Iterator[Change]:
        request = self._selection.watch_request(self._version)
        self._stream = stream = self._client.open(request, read_seconds=WATCH_SECONDS + READ_TIMEOUT_MARGIN)
        try:
            if self._closed:  # by another thread, while the stream was opened
                return
            for line in split_lines(stream.chunks(), OBJECT_BYTES):
                if line.strip():
                    yield from self._parse_event(request, line)
        finally:
            stream.close()

    def _parse_event(self, request: Request, line: bytes) -> Iterator[Change]:
        try:
            event = decode_json(line, WatchEventShape)
        except ParseError as err:  # the stream ended in the middle of a line
            raise ConnectionLost("the watch ended within an event") from err
        item = event["object"]
        if event["type"] == "ERROR":
            code = item.get("code")
            raise make_error(request, code if isinstance(code, int) else 500, json.encode(item))
        self._version = read_version(item)
        if event["type"] != "BOOKMARK":
            try:
                check_item(self._selection.resource, item)
            except ValidationError as err:
                title = f"the API server sent {self._selection.resource} that kfjob cannot read"
                raise Malformed(title, cause=str(err)) from err
            yield ItemChange(self._selection.resource, item, deleted=event["type"] == "DELETED", name=self._selection.name)


def merge_watches(watches: Sequence[ObjectWatch]) -> Generator[Change]:
    """Yield the changes of all watches as they come. Ends with the first watch that ends; closing it closes all watches."""
    inbox: queue.SimpleQueue[Change | int] = queue.SimpleQueue()  # the index of a watch stands for its end

    def read(index: int) -> None:
        try:
            for change in watches[index].changes():
                inbox.put(change)
        finally:
            inbox.put(index)

    tasks = [Task(partial(read, index), name="watch") for index in range(len(watches))]
    try:
        while not isinstance(change := inbox.get(), int):
            yield change
        tasks[change].result()  # raises the error that ended the watch
    finally:
        for watch in watches:
            watch.close()


class JobState:
    """The last reported state of one job and its pods. Pure: the caller passes the time (`now`)."""

    def __init__(self, kind: JobKind, uid: str, job_id: str = "") -> None:
        """Objects of other jobs are ignored, also of earlier and later jobs of the same name. Pods have the `job_id`."""
        self._kind = kind
        self._uid = uid
        self._job_id = job_id or uid
        self._job: JobChanged | None = None
        self._pods: dict[str, PodChanged] = {}  # by name; the operator re-creates a pod under the same name
        self._store: PodChanged | None = None  # the pod of the job's own etcd

    def take(self, change: Change, *, now: int) -> list[StateEvent]:
        """Return the events that a change causes. A change of one pod that was selected by its name is one of the own etcd."""
        if change.resource == self._kind.resource:
            return [*self._take_job(change, now)]
        if change.name:
            return [*self._take_store(change, now)]
        if isinstance(change, ItemChange):
            return [*self._take_pod(change.item, deleted=change.deleted, now=now)]
        own = [pod for pod in change.present if self._kind.find_job_id(pod) == self._job_id]
        names = {pod["metadata"]["name"] for pod in own}
        deleted = [self._delete_pod(pod, now) for name, pod in list(self._pods.items()) if name not in names]
        return [*deleted, *(event for pod in own for event in self._take_pod(pod, deleted=False, now=now))]

    def _take_job(self, change: Change, now: int) -> Iterator[JobChanged]:
        if isinstance(change, ItemChange) and change.deleted and change.item["metadata"]["uid"] != self._uid:
            return  # an earlier job of the same name has gone
        job = next((item for item in change.present if item["metadata"]["uid"] == self._uid), None)
        if job is not None:
            new = use_running_pods(self._kind, self._kind.read_state(job, now=now), self._pods.values())
            if new.phase is JobPhase.PENDING and self._job and self._job.phase is JobPhase.RUNNING:
                new = replace(new, phase=JobPhase.RUNNING)  # its last pod has ended, and the controller has not said so yet
        else:
            new = replace(
                self._job or JobChanged(phase=JobPhase.STOPPED), phase=JobPhase.STOPPED, reason="", message="", time=now
            )
        if self._job is None or replace(self._job, time=now) != new:
            self._job = new
            yield new

    def _take_pod(self, item: JsonObject, *, deleted: bool, now: int) -> Iterator[PodChanged | JobChanged]:
        if self._kind.find_job_id(item) != self._job_id:
            return
        new = pod_changed(self._kind, item, now=now)
        old = self._pods.get(new.pod)
        if deleted:
            if old and old.uid == new.uid:
                yield self._delete_pod(old, now)
            return
        if old and old.uid != new.uid:
            yield self._delete_pod(old, now)
            old = None
        if old is None or replace(old, time=now) != new:
            self._pods[new.pod] = new
            yield new
        if self._job and (job := use_running_pods(self._kind, self._job, (new,))) is not self._job:
            self._job = replace(job, time=now)
            yield self._job

    def _take_store(self, change: Change, now: int) -> Iterator[StoreChanged]:
        """Yield the state of the own etcd. Its end follows from that of the job, so a deletion says nothing."""
        for item in change.present:
            new = pod_changed(self._kind, item, container=ETCD_CONTAINER, now=now)
            is_own = find_owner_uid(item, self._kind.name) == self._uid
            if is_own and (self._store is None or replace(self._store, time=now) != new):
                self._store = new
                yield StoreChanged(state=new)

    def _delete_pod(self, pod: PodChanged, now: int) -> PodChanged:
        del self._pods[pod.pod]
        return replace(pod, phase=PodPhase.DELETED, ready=False, time=now)
