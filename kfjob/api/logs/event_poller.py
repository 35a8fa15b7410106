"""Poll what the cluster's controllers record about a followed job, and add it to the job's events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kfjob.backends.base import Backend, JobRef
from kfjob.base.errors import KfjobError
from kfjob.joblog.events import Event, JobChanged, KubernetesEvent, LinesSkipped, LogLine, OpenLine, Tick, WorkloadStatus

INTERVAL_SECONDS = 10.0
"""Time between two reads of the cluster's events."""

Record = KubernetesEvent | WorkloadStatus


@contextmanager
def add_cluster_events(events: Iterable[Event], backend: Backend, ref: JobRef) -> Iterator[Iterator[Event]]:
    """Yield the events together with the records of the cluster's controllers.

    Old records come after the present states. Records that cannot be read are left out, because they only explain.
    """
    poller = _Poller(backend, ref)
    thread = threading.Thread(target=poller.run, name="kfjob-event-poller", daemon=True)
    try:
        yield _merge(events, poller, thread)
    finally:
        poller.closed.set()


def _merge(events: Iterable[Event], poller: _Poller, thread: threading.Thread) -> Iterator[Event]:
    polling = ended = False
    for event in events:
        if not polling and isinstance(
            event, LogLine | LinesSkipped | OpenLine | Tick
        ):  # the present states come before the first line
            polling = True
            thread.start()
        ended = ended or (isinstance(event, JobChanged) and event.phase.ended)
        if polling:
            yield from poller.new_records()
        yield event
    if ended:  # the reason for the end was recorded a moment ago
        poller.poll()
    yield from poller.new_records()


class _Poller:
    def __init__(self, backend: Backend, ref: JobRef) -> None:
        self.closed = threading.Event()
        self._backend = backend
        self._ref = ref
        self._records: dict[str, Record] = {}
        self._new: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def run(self) -> None:
        """Poll until the poller is closed."""
        self.poll()
        while not self.closed.wait(INTERVAL_SECONDS):
            self.poll()

    def poll(self) -> None:
        """Read the records, and queue those that are new or have changed."""
        with self._lock, suppress(KfjobError):
            for record in self._backend.events(self._ref):
                key = record.uid or repr(record) if isinstance(record, KubernetesEvent) else record.name
                if self._records.get(key) != record:
                    self._records[key] = record
                    self._new.put(record)

    def new_records(self) -> Iterator[Record]:
        """Yield the records that were queued since the last call."""
        with suppress(queue.Empty):
            while True:
                yield self._new.get_nowait()
