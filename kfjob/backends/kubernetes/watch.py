"""Lists and watches, made into one stream of changes that survives lost connections, old versions and server restarts.

A `Feed` talks about one selection of objects, `joined` merges several feeds, `JobState` (pure) makes events of what they say.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Generator, Iterator, Sequence

from msgspec import MsgspecError, Struct, json
from msgspec.structs import replace

from kfjob.backends.kubernetes.client import Client, Patience
from kfjob.backends.kubernetes.errors import Broken, Expired, refusal
from kfjob.backends.kubernetes.lines import lines
from kfjob.backends.kubernetes.objects import Object, job_changed, owner, pod_changed
from kfjob.backends.kubernetes.requests import WATCH_SECONDS, Request, Selection
from kfjob.backends.kubernetes.transport import Stream
from kfjob.errors import BackendError, Unreachable
from kfjob.events import JobChanged, JobPhase, PodChanged, PodPhase
from kfjob.spec import api_objects

OBJECT_BYTES = 16 * 1024 * 1024
"""No event is larger: etcd takes objects of 1.5 MB."""


class Listed(Struct, frozen=True):
    """Everything that there is now; what is not in it is gone."""

    resource: str
    items: list[Object]


class Changed(Struct, frozen=True):
    """One object was added, changed or deleted."""

    resource: str
    thing: Object
    deleted: bool


Change = Listed | Changed


class Feed:
    """One selection of objects: a list, then every change. Read by one thread, closed by any."""

    def __init__(self, client: Client, selection: Selection) -> None:
        """Nothing is sent yet."""
        self._client = client
        self._selection = selection
        self._version = ""  # from where to watch; "": list first
        self._stream: Stream | None = None
        self._closed = False

    def list(self) -> Listed:
        """What there is now; changes follow from here."""
        answer = self._client.call(self._selection.listing())
        self._version = answer["metadata"]["resourceVersion"]
        return Listed(self._selection.resource, answer.get("items") or [])

    def changes(self) -> Generator[Change]:
        """Every change after `list`, or else the list and every change, until the feed or the client is closed.

        Raises:
            KfjobError: the API server does not let us, or is away for too long.
        """
        patience = Patience(self._client)
        while not (self._closed or self._client.closed):
            opened = time.monotonic()
            try:
                if not self._version:
                    yield self.list()
                for change in self._watch_once():
                    patience.success()
                    yield change
                patience.ended(opened)
            except Expired:
                self._version = ""
            except (Broken, Unreachable, BackendError) as err:
                patience.failure(err)
            patience.pause()

    def close(self) -> None:
        """End `changes`, also while another thread waits in it."""
        self._closed = True
        if self._stream:
            self._stream.shut()

    def _watch_once(self) -> Iterator[Change]:
        request = self._selection.watching(self._version)
        self._stream = stream = self._client.open(request, read_timeout=WATCH_SECONDS + 30)
        try:
            if self._closed:  # meanwhile, by another thread
                return
            for line in lines(stream.chunks(), OBJECT_BYTES):
                if line.strip():
                    yield from self._event(request, line)
        finally:
            stream.close()

    def _event(self, request: Request, line: bytes) -> Iterator[Change]:
        try:
            event = json.decode(line)
            kind, thing = event["type"], event["object"]
        except (MsgspecError, KeyError, TypeError) as err:  # cut off in the middle of a line
            raise Broken("the watch ended within an event", sent=True) from err
        if kind == "ERROR":
            raise refusal(request, int(thing.get("code") or 500), json.encode(thing))
        self._version = thing["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            yield Changed(self._selection.resource, thing, deleted=kind == "DELETED")


def joined(feeds: Sequence[Feed]) -> Generator[Change]:
    """The changes of all feeds, as they come. Ends with the first feed that ends; closing it closes the feeds."""
    inbox: queue.SimpleQueue[Change | Exception | None] = queue.SimpleQueue()

    def read(feed: Feed) -> None:
        try:
            for change in feed.changes():
                inbox.put(change)
            inbox.put(None)
        except Exception as err:  # noqa: BLE001 - raised again by the thread that reads the inbox
            inbox.put(err)

    for feed in feeds:
        threading.Thread(target=read, args=(feed,), name="kfjob-watch", daemon=True).start()
    try:
        while (got := inbox.get()) is not None:
            if isinstance(got, Exception):
                raise got
            yield got
    finally:
        for feed in feeds:
            feed.close()


class JobState:
    """One job and its pods as last reported. Pure: `now` comes from outside."""

    def __init__(self, uid: str) -> None:
        """Objects of other jobs, also of earlier and later ones of the same name, are passed over."""
        self._uid = uid
        self._job: JobChanged | None = None
        self._pods: dict[str, PodChanged] = {}  # by name; the operator makes a pod anew under the same name

    def take(self, change: Change, *, now: int) -> list[JobChanged | PodChanged]:
        """What `change` says that was not known."""
        if change.resource == api_objects.PYTORCHJOBS:
            return [*self._take_job(change, now)]
        if isinstance(change, Changed):
            return [*self._take_pod(change.thing, deleted=change.deleted, now=now)]
        own = [pod for pod in change.items if owner(pod) == self._uid]
        there = {pod["metadata"]["name"] for pod in own}
        gone = [self._gone(pod, now) for name, pod in list(self._pods.items()) if name not in there]
        return [*gone, *(event for pod in own for event in self._take_pod(pod, deleted=False, now=now))]

    def _take_job(self, change: Change, now: int) -> Iterator[JobChanged]:
        things = change.items if isinstance(change, Listed) else [] if change.deleted else [change.thing]
        mine = next((thing for thing in things if thing["metadata"]["uid"] == self._uid), None)
        if mine is not None:
            new = job_changed(mine, now=now)
        else:
            new = replace(
                self._job or JobChanged(phase=JobPhase.STOPPED), phase=JobPhase.STOPPED, reason="", message="", time=now
            )
        if self._job is None or replace(self._job, time=now) != new:
            self._job = new
            yield new

    def _take_pod(self, thing: Object, *, deleted: bool, now: int) -> Iterator[PodChanged]:
        if owner(thing) != self._uid:
            return
        new = pod_changed(thing, now=now)
        old = self._pods.get(new.pod)
        if deleted:
            if old and old.uid == new.uid:
                yield self._gone(old, now)
            return
        if old and old.uid != new.uid:
            yield self._gone(old, now)
            old = None
        if old is None or replace(old, time=now) != new:
            self._pods[new.pod] = new
            yield new

    def _gone(self, pod: PodChanged, now: int) -> PodChanged:
        del self._pods[pod.pod]
        return replace(pod, phase=PodPhase.DELETED, ready=False, time=now)
