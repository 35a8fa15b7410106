"""The observed state of one pod: its newest status, and the evidence in its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.joblog.agents.agent_log import AgentLog, find_agent_message, is_etcd_message, is_success
from kfjob.joblog.agents.agent_records import AgentEvent, AgentEventKind, AgentRecord, LaunchConfig, RendezvousResult
from kfjob.joblog.events import LinesSkipped, LogLine, OpenLine, PodChanged, PodPhase, find_host
from kfjob.joblog.lines.timestamps import resolve_year
from kfjob.joblog.progress.exact_formats import ProgressReader
from kfjob.joblog.progress.general.frequent_lines import FrequentLines
from kfjob.joblog.progress.general.log_reader import read_progress
from kfjob.joblog.progress.general.reader_state import ReaderState
from kfjob.joblog.progress.reading import LineReading, Reading

WHOLE, SAMPLE = 1000, 64
"""Lines of a log without progress whose layouts are counted: the first ones, and of the others each of this many."""
MAX_CONTAINER_IDS = 16
"""Ids of earlier containers per pod."""

_ENDS_OF_ROUNDS = frozenset({AgentEventKind.RENDEZVOUS, AgentEventKind.RESTARTING, AgentEventKind.MEMBERSHIP})
_ENDS_OF_AGENTS = frozenset({AgentEventKind.SIGNAL_RECEIVED, AgentEventKind.CLOSED, AgentEventKind.FAILED})


class EvidenceLine(Struct, frozen=True, kw_only=True):
    """A log line that is evidence, with its time and its position."""

    text: str
    number: int  # position within its container's log
    order: int  # position among the lines of all pods, as read
    time: int | None = None
    yearless: int | None = None

    def resolve_time(self, near: int | None) -> int | None:
        """Return the time of the line; a glog time gets the year that brings it closest to `near`."""
        if self.time is not None or self.yearless is None:
            return self.time
        return resolve_year(self.yearless, near)


class ContainerLog(Struct, frozen=True):
    """State of reading one container's log, with the newest evidence in it."""

    id: str = ""
    container: str = ""
    lines: int = 0
    last_line: LogLine | OpenLine | None = None  # the newest line that is neither blank nor the agent's, else the first
    agent: AgentLog = field(default_factory=AgentLog)
    launch: LaunchConfig | None = None
    result: RendezvousResult | None = None
    result_line: EvidenceLine | None = None
    reading: Reading | None = None
    reading_line: EvidenceLine | None = None
    result_at_reading: RendezvousResult | None = None  # the rendezvous result at the time of the newest progress line
    general: ReaderState = field(default_factory=ReaderState)
    finished: bool = False  # its agent has reported that its processes ended with success
    agent_lines: int = 0  # lines up to the newest one of the agent
    is_joining: bool = False  # its agent has left a round, or joins its first one
    joining_since: int | None = None  # time of the line that says so
    has_failed: bool = False  # its agent has given up after a failure
    frequent: FrequentLines = field(default_factory=FrequentLines)  # the program's lines, as long as none is progress

    def feed(
        self, event: LogLine | OpenLine, order: int, progress: ProgressReader
    ) -> tuple[ContainerLog, tuple[AgentRecord, ...], tuple[LineReading, ...]]:
        """Return the log after one more line, with the agent records and the progress readings in that line."""
        number, is_open = self.lines, isinstance(event, OpenLine)
        agent, records = (self.agent, ()) if is_open else self.agent.feed(number, event.text, event.time)
        is_detail = is_etcd_message(event.text) or self.agent.continues(event.text)
        is_agents = is_detail or find_agent_message(event.text) is not None
        is_unread = self.reading is None and not is_agents and not is_open and (number < WHOLE or not number % SAMPLE)
        general, line_readings = read_progress(event.text, number, event.time, progress, self.general)
        log = ContainerLog(  # field by field, because `replace` costs more and every line comes here
            self.id or event.container_id,
            event.container,
            number if is_open else number + 1,
            _choose_last_line(self.last_line, event, is_agents=is_agents),
            agent,
            self.launch,
            self.result,
            self.result_line,
            self.reading,
            self.reading_line,
            self.result_at_reading,
            general,
            self.finished,
            number + 1 if records or (self.reading is None and is_agents) else self.agent_lines,
            self.is_joining,
            self.joining_since,
            self.has_failed,
            self.frequent.add(event.text) if is_unread else self.frequent,
        )
        for record in records:
            log = log._with_record(record, order)
        if log.is_joining and not self.is_joining:
            log = replace(log, joining_since=event.time)
        for line_reading in line_readings:
            log = log.with_reading(line_reading, order)
        return log, records, line_readings

    def with_reading(self, line_reading: LineReading, order: int) -> ContainerLog:
        """Return the log after one more reading."""
        reading = line_reading.reading
        if reading.is_evaluation or (reading.extra and self.reading and self.reading.conclusive):
            return self
        time = reading.line_time if line_reading.line.time is None else line_reading.line.time
        line = EvidenceLine(text=line_reading.line.text.strip(), number=line_reading.line.number, order=order, time=time)
        return replace(self, reading=reading, reading_line=line, result_at_reading=self.result, is_joining=False)

    def skip(self, event: LinesSkipped) -> ContainerLog:
        """Return the log after lines that a filter left out."""
        return replace(
            self, id=self.id or event.container_id, container=event.container, lines=self.lines + event.count, last_line=None
        )

    def _with_record(self, record: AgentRecord, order: int) -> ContainerLog:
        if isinstance(record, LaunchConfig):
            return replace(self, launch=record, is_joining=self.result is None)
        if isinstance(record, AgentEvent):
            return self._with_event(record)
        line = EvidenceLine(text=record.quote, number=record.line, order=order, time=record.time, yearless=record.yearless)
        return replace(self, result=record, result_line=line, finished=False, is_joining=False, has_failed=False)

    def _with_event(self, event: AgentEvent) -> ContainerLog:
        if is_success(event):
            return replace(self, finished=True)
        if event.kind in _ENDS_OF_ROUNDS:
            return replace(self, is_joining=True)
        if event.kind in _ENDS_OF_AGENTS:
            return replace(self, is_joining=False, has_failed=event.kind is AgentEventKind.FAILED)
        return self

    @property
    def rank(self) -> int | None:
        """The lowest rank that its progress lines name."""
        return self.general.rank

    @property
    def program_lines(self) -> int:
        """Lines after the newest one of the agent."""
        return self.lines - self.agent_lines

    @property
    def has_rejoined(self) -> bool:
        """Whether its agent has joined a round since the newest progress line."""
        result, reading = self.result_line, self.reading_line
        return result is not None and reading is not None and result.number >= reading.number

    @property
    def has_evidence(self) -> bool:
        """Whether the log holds a rendezvous result or a progress line."""
        return self.result is not None or self.reading is not None


def _choose_last_line(
    before: LogLine | OpenLine | None, event: LogLine | OpenLine, *, is_agents: bool
) -> LogLine | OpenLine | None:
    """Return the new line, unless it is blank, or the agent's and not the first one."""
    if not event.text or event.text.isspace() or (before is not None and is_agents):
        return before
    return event


class PodView(Struct, frozen=True):
    """A pod of the job, known from its status, its log, or both."""

    name: str
    state: PodChanged | None = None
    log: ContainerLog = field(default_factory=ContainerLog)
    previous_log: ContainerLog | None = None  # of the newest earlier container with evidence in its log
    previous_ids: tuple[str, ...] = ()
    gaps: int = 0

    @property
    def host(self) -> str:
        """The name under which other pods reach it."""
        return find_host(self.state) if self.state else self.name

    @property
    def order(self) -> tuple[str, int, str]:
        """A key that sorts pods: Masters first, then by replica index."""
        return (self.state.replica_type, self.state.replica_index, self.name) if self.state else ("", 0, self.name)

    @property
    def phase(self) -> PodPhase | None:
        """The pod's phase, None if no status is known."""
        return self.state.phase if self.state else None

    @property
    def has_succeeded(self) -> bool:
        """Whether its training processes have ended with success; its agent may wait for others."""
        return self.phase is PodPhase.SUCCEEDED or self.log.finished

    @property
    def has_agent(self) -> bool:
        """Whether an agent printed its log, or that of its container before a restart."""
        return any(log.launch is not None or log.result is not None for log in self.logs)

    @property
    def has_progress(self) -> bool:
        """Whether a progress line was read in its log, or in that of its container before a restart."""
        return any(log.reading is not None for log in self.logs)

    @property
    def logs(self) -> tuple[ContainerLog, ...]:
        """Its log, and that of its container before a restart."""
        return (self.log, self.previous_log) if self.previous_log else (self.log,)

    @property
    def live(self) -> bool:
        """Whether its container may still print; true while no status is known."""
        return self.phase is None or not self.phase.ended

    @property
    def node(self) -> str:
        """The node of the pod, "" if unknown."""
        return self.state.node if self.state else ""

    @property
    def restarts(self) -> int:
        """Restarts of its container, from the status or from the container ids in its log."""
        return max(self.state.restarts if self.state else 0, len(self.previous_ids))

    @property
    def group_rank(self) -> int | None:
        """Group rank in its newest rendezvous result."""
        return self.log.result.group_rank if self.log.result else None

    @property
    def global_ranks(self) -> tuple[int, ...]:
        """Global ranks in its newest rendezvous result; empty if unknown."""
        return self.log.result.global_ranks if self.log.result else ()

    def with_state(self, state: PodChanged) -> PodView:
        """Return the pod with a newer status."""
        return replace(self.in_container(state.container_id, state.uid), state=state)

    def with_log(self, log: ContainerLog) -> PodView:
        """Return the pod with a newer log of its container."""
        return PodView(  # field by field, as in `ContainerLog.feed`
            self.name, self.state, log, self.previous_log, self.previous_ids, self.gaps
        )

    def in_container(self, container_id: str, uid: str = "") -> PodView:
        """Return the pod with an empty log if the container, or by `uid` the whole pod, is a new one."""
        is_new_pod = uid and self.state and self.state.uid and uid != self.state.uid
        if not is_new_pod and (not container_id or container_id == self.log.id or container_id in self.previous_ids):
            return self
        if not is_new_pod and not self.log.id:
            return replace(self, log=replace(self.log, id=container_id))
        ids = (*self.previous_ids, self.log.id or f"before {container_id}")[-MAX_CONTAINER_IDS:]
        previous = self.log if self.log.has_evidence else self.previous_log
        return replace(self, log=ContainerLog(container_id), previous_log=previous, previous_ids=ids)


_CHUNK = 32


class Pods(Mapping[str, PodView]):
    """The pods of a job by name, as an immutable value.

    Replacing one pod costs the same for 2 pods and for 1000, while a dict would be copied for every log line. Pods keep the
    order in which they appeared. A library's map, such as `immutables.Map`, is compiled code that installs need for these 40
    lines alone, and it keeps no order.
    """

    __slots__ = ("_chunks", "_positions")

    def __init__(self, positions: Mapping[str, int] | None = None, chunks: tuple[tuple[PodView, ...], ...] = ()) -> None:
        """Create an empty mapping; only `with_pod` passes arguments."""
        self._positions = positions or {}
        self._chunks = chunks

    def with_pod(self, pod: PodView) -> Pods:
        """Return the pods with this one added, or replaced if its name exists."""
        position = self._positions.get(pod.name)
        if position is None:
            return self._append(pod)
        number, offset = divmod(position, _CHUNK)
        chunk = self._chunks[number]
        chunk = (*chunk[:offset], pod, *chunk[offset + 1 :])
        return Pods(self._positions, (*self._chunks[:number], chunk, *self._chunks[number + 1 :]))

    def sort(self) -> list[PodView]:
        """Return the pods, Masters first, then by replica index."""
        return sorted(self.values(), key=lambda pod: pod.order)

    def _append(self, pod: PodView) -> Pods:
        positions = {**self._positions, pod.name: len(self._positions)}
        if self._chunks and len(self._chunks[-1]) < _CHUNK:
            return Pods(positions, (*self._chunks[:-1], (*self._chunks[-1], pod)))
        return Pods(positions, (*self._chunks, (pod,)))

    def __getitem__(self, name: str) -> PodView:
        number, offset = divmod(self._positions[name], _CHUNK)
        return self._chunks[number][offset]

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"Pods({[pod for chunk in self._chunks for pod in chunk]!r})"
