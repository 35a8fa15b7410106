"""What the cluster writes down of a followed job, asked for now and then, put among all that happens to it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from kfjob.backends.base import Backend, JobRef
from kfjob.errors import KfjobError
from kfjob.events import Event, JobChanged, KubernetesEvent, LinesSkipped, LogLine, OpenLine, Tick, WorkloadStatus

EVERY_SECONDS = 10.0


@contextmanager
def joined(events: Iterable[Event], backend: Backend, ref: JobRef) -> Iterator[Iterator[Event]]:
    """Yields `events` with what the cluster has written down among them; the present states come first, the older words then.

    What cannot be read is not missed: it only explains.
    """
    recorder = _Recorder(backend, ref)
    thread = threading.Thread(target=recorder.run, name="kfjob-recorded", daemon=True)
    try:
        yield _merge(events, recorder, thread)
    finally:
        recorder.closed.set()


def _merge(events: Iterable[Event], recorder: _Recorder, thread: threading.Thread) -> Iterator[Event]:
    settled = ended = False
    for event in events:
        if not settled and isinstance(event, LogLine | LinesSkipped | OpenLine | Tick):  # the states that there were are told
            settled = True
            thread.start()
        ended = ended or (isinstance(event, JobChanged) and event.phase.ended)
        if settled:
            yield from recorder.fresh()
        yield event
    if ended:  # what ended it was written down a moment ago
        recorder.ask()
    yield from recorder.fresh()


class _Recorder:
    def __init__(self, backend: Backend, ref: JobRef) -> None:
        self.closed = threading.Event()
        self._backend = backend
        self._ref = ref
        self._known: dict[str, KubernetesEvent | WorkloadStatus] = {}
        self._inbox: queue.SimpleQueue[KubernetesEvent | WorkloadStatus] = queue.SimpleQueue()
        self._asking = threading.Lock()

    def run(self) -> None:
        """Ask again and again until it is closed."""
        self.ask()
        while not self.closed.wait(EVERY_SECONDS):
            self.ask()

    def ask(self) -> None:
        """Take up what is new, and what is told anew."""
        with self._asking, suppress(KfjobError):
            for one in self._backend.events(self._ref):
                key = one.uid or repr(one) if isinstance(one, KubernetesEvent) else one.name
                if self._known.get(key) != one:
                    self._known[key] = one
                    self._inbox.put(one)

    def fresh(self) -> Iterator[KubernetesEvent | WorkloadStatus]:
        """What was taken up since the last call."""
        with suppress(queue.Empty):
            while True:
                yield self._inbox.get_nowait()
