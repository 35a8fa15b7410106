"""One pod as observation sees it: its newest state, and what the log of its container has told so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.events import LogLine, PodChanged, PodPhase
from kfjob.observe.agent_log import AgentLog
from kfjob.observe.agent_records import AgentEvent, AgentRecord, LaunchConfig, RendezvousResult
from kfjob.observe.progress import ProgressReader, Reading
from kfjob.observe.timestamps import resolve_year

REMEMBERED_CONTAINERS = 16


class EvidenceLine(Struct, frozen=True, kw_only=True):
    """A log line that is evidence: which one, when, and the how-manyeth line it was that came in."""

    text: str
    line: int  # within its container
    order: int  # over all pods
    time: int | None = None
    yearless: int | None = None

    def resolve_time(self, near: int | None) -> int | None:
        """When, as well as can be known: glog's own time is put into the year of `near`."""
        if self.time is not None or self.yearless is None:
            return self.time
        return resolve_year(self.yearless, near)


class ContainerLog(Struct, frozen=True):
    """How far one container's log is read, and its newest evidence."""

    id: str = ""
    container: str = ""
    lines: int = 0
    last_line: int | None = None  # time
    agent: AgentLog = field(default_factory=AgentLog)
    launch: LaunchConfig | None = None
    result: RendezvousResult | None = None
    result_line: EvidenceLine | None = None
    reading: Reading | None = None
    reading_line: EvidenceLine | None = None
    result_at_reading: RendezvousResult | None = None  # the result that held when it printed last

    def feed(
        self, event: LogLine, order: int, progress: ProgressReader
    ) -> tuple[ContainerLog, tuple[AgentRecord, ...], Reading | None]:
        """The log with one more line, and what was heard in that line."""
        number = self.lines + event.skipped
        agent, heard = (self.agent, ()) if event.open else self.agent.feed(number, event.text, event.time)
        log = ContainerLog(
            self.id or event.container_id,
            event.container,
            number + (not event.open),
            self.last_line if event.time is None else event.time,
            agent,
            self.launch,
            self.result,
            self.result_line,
            self.reading,
            self.reading_line,
            self.result_at_reading,
        )
        for one in heard:
            log = log._hear(one, order)
        reading = progress.read(event.text)
        if reading:
            time = event.time or reading.line_time
            said = EvidenceLine(text=_newest(event.text, progress), line=number, order=order, time=time)
            log = replace(log, reading=reading, reading_line=said, result_at_reading=log.result)
        return log, heard, reading

    def _hear(self, one: AgentRecord, order: int) -> ContainerLog:
        if isinstance(one, LaunchConfig):
            return replace(self, launch=one)
        if isinstance(one, AgentEvent):
            return self
        said = EvidenceLine(text=one.quote, line=one.line, order=order, time=one.time, yearless=one.yearless)
        return replace(self, result=one, result_line=said)

    @property
    def has_evidence(self) -> bool:
        """Whether it holds any evidence."""
        return self.result is not None or self.reading is not None


def _newest(text: str, progress: ProgressReader) -> str:
    """Of a bar that was drawn over and over in one line its newest state that is whole, else the line."""
    if "\r" in text:
        text = next((state for state in reversed(text.split("\r")) if progress.read(state)), text)
    return text.strip()


class PodView(Struct, frozen=True):
    """A pod of the job. Known from its state, its log, or both."""

    name: str
    state: PodChanged | None = None
    log: ContainerLog = field(default_factory=ContainerLog)
    past: ContainerLog | None = None  # of the newest earlier container that told anything
    past_ids: tuple[str, ...] = ()
    gaps: int = 0

    @property
    def phase(self) -> PodPhase | None:
        """None: nobody told."""
        return self.state.phase if self.state else None

    @property
    def live(self) -> bool:
        """Whether its container may still print: true as long as nobody says otherwise."""
        return self.phase is None or not self.phase.ended

    @property
    def node(self) -> str:
        """The machine it runs on, "" when not known."""
        return self.state.node if self.state else ""

    @property
    def restarts(self) -> int:
        """Of its container: as Kubernetes counts, or as the log shows."""
        return max(self.state.restarts if self.state else 0, len(self.past_ids))

    @property
    def group_rank(self) -> int | None:
        """As its own newest rendezvous result says."""
        return self.log.result.group_rank if self.log.result else None

    @property
    def global_ranks(self) -> tuple[int, ...]:
        """As its own newest rendezvous result says; empty when not known."""
        return self.log.result.global_ranks if self.log.result else ()

    def with_state(self, state: PodChanged) -> PodView:
        """The pod with a newer state."""
        return replace(self.in_container(state.container_id, state.uid), state=state)

    def in_container(self, container_id: str, uid: str = "") -> PodView:
        """The pod with its log begun anew, if this container (or, by `uid`, the whole pod) is another one than before."""
        replaced = uid and self.state and self.state.uid and uid != self.state.uid
        if not replaced and (not container_id or container_id == self.log.id or container_id in self.past_ids):
            return self
        if not replaced and not self.log.id:
            return replace(self, log=replace(self.log, id=container_id))
        ids = (*self.past_ids, self.log.id or f"before {container_id}")[-REMEMBERED_CONTAINERS:]
        past = self.log if self.log.has_evidence else self.past
        return replace(self, log=ContainerLog(container_id), past=past, past_ids=ids)


_CHUNK = 32


class Pods(Mapping[str, PodView]):
    """The pods of a job by name, as a value: with one pod changed it is another one, which costs the same for 2 and for 1000.

    A dict would be copied as a whole for every log line. Pods stay in the order in which they were first heard of.
    """

    __slots__ = ("_chunks", "_places")

    def __init__(self, places: Mapping[str, int] | None = None, chunks: tuple[tuple[PodView, ...], ...] = ()) -> None:
        """No pods; the arguments are `having`'s."""
        self._places = places or {}
        self._chunks = chunks

    def with_pod(self, pod: PodView) -> Pods:
        """The same pods with this one, in the place of the one of its name."""
        at = self._places.get(pod.name)
        if at is None:
            return self._and(pod)
        number, offset = divmod(at, _CHUNK)
        chunk = self._chunks[number]
        chunk = (*chunk[:offset], pod, *chunk[offset + 1 :])
        return Pods(self._places, (*self._chunks[:number], chunk, *self._chunks[number + 1 :]))

    def _and(self, pod: PodView) -> Pods:
        places = {**self._places, pod.name: len(self._places)}
        if self._chunks and len(self._chunks[-1]) < _CHUNK:
            return Pods(places, (*self._chunks[:-1], (*self._chunks[-1], pod)))
        return Pods(places, (*self._chunks, (pod,)))

    def __getitem__(self, name: str) -> PodView:
        number, offset = divmod(self._places[name], _CHUNK)
        return self._chunks[number][offset]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"Pods({[pod for chunk in self._chunks for pod in chunk]!r})"
