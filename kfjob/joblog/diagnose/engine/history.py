"""Occurrences of symptoms, and the history of a job that they belong to. Memory is bounded, however long the job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.joblog.agents.agent_records import LaunchConfig, RendezvousResult
from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Mark
from kfjob.joblog.diagnose.engine.line_reports import Announcement, RecentLines, Timeouts
from kfjob.joblog.diagnose.engine.matching import SymptomKey
from kfjob.joblog.diagnose.rule import UNKNOWN_VALUE, Role, Rule
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.events import PodChanged, PodPhase
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.pods.pod_problems import PodStage
from kfjob.joblog.pods.pod_view import EvidenceLine
from kfjob.joblog.view.job_view import JobView

MAX_OCCURRENCES = 8
"""Occurrences of a symptom in one pod: the one of its first round, and those of its newest rounds."""
MAX_SYMPTOMS = 64
"""Distinct symptoms of one pod."""
_AFTER_ALL_LINES = 10**12
"""`order` of an occurrence that no line shows."""
_OMP_BANNER = ("omp-banner", "")
"""Key of the symptom that torchrun started several processes."""


class Occurrence(Struct, kw_only=True):
    """One occurrence of a symptom."""

    rule: Rule
    pod: str = ""  # "" for a symptom of the whole job
    values: Mapping[str, str]
    order: int
    timestamp: Timestamp
    mark: Mark | None = None  # place of the line in its log
    latest: Timestamp | None = None  # newest report of an event
    line: int | None = None
    rank: int | None = None
    place: str = ""  # `file:line` of the program in the traceback
    evidence: tuple[str, ...] = ()
    context: tuple[str, ...] = ()  # the lines before the evidence
    in_exception: bool = False  # an exception shows it
    raised: bool = False  # it is a message, and a later exception of the same round shows it too
    in_warning: bool = False  # the program calls the line a warning
    after_join: bool = False  # the agent had joined a round before
    in_previous_container: bool = False
    pod_waits: bool = False  # the pod had not started
    stage: PodStage | None = None  # of the pod's start, in which it waits
    resolved: bool = False  # the pod has started since
    announcement: Announcement = field(default_factory=Announcement)
    lasts: bool = False  # no later round cured it: they end with it again, or what it explains lasts
    stream: str = ""  # prefix of the process that printed it
    first_position: int = 0  # of its traceback among the lines of its process
    last_position: int = 0

    @property
    def role(self) -> Role:
        """The role of its rule: one that an agent reports after it had joined may follow from the end of another rank."""
        return (self.rule.role_after_join if self.after_join else None) or self.rule.role

    def is_in_round_of(self, other: Occurrence) -> bool:
        """Return whether lines of the same round, or of the same container before its first round, show both."""
        return self.mark is not None and other.mark is not None and self.mark.round_start == other.mark.round_start

    def fill_unknown(self, values: Mapping[str, str]) -> None:
        """Fill in values from a later line of the same symptom: a name may follow its error two lines below."""
        if UNKNOWN_VALUE in self.values.values():
            known = {name: value for name, value in values.items() if value != UNKNOWN_VALUE}
            self.values = {
                name: known.get(name, value) if value == UNKNOWN_VALUE else value for name, value in self.values.items()
            }


Occasion = tuple[int, int]
"""Order of the start of a round, or of an event, and the progress in the round: repetitions within it are one occurrence."""


class Symptom(Struct):
    """All occurrences of one symptom in one pod."""

    rule: Rule
    count: int = 0
    occasion: Occasion = (-1, -1)  # of the newest occurrence
    occurrences: list[Occurrence] = field(default_factory=list)
    ranks: frozenset[int] = frozenset()  # that printed it


class SymptomTable(Mapping[SymptomKey, Symptom]):
    """The distinct symptoms of one pod, or of the job as a whole."""

    def __init__(self) -> None:
        self._symptoms: dict[SymptomKey, Symptom] = {}

    def add(self, occurrence: Occurrence, *, occasion: Occasion, variant: str = "") -> None:
        """Count the occurrence; keep it if it is the first of its occasion, else let it complete the first one."""
        key = (occurrence.rule.id, variant)
        if key not in self._symptoms and len(self._symptoms) >= MAX_SYMPTOMS:
            return
        symptom = self._symptoms.setdefault(key, Symptom(occurrence.rule))
        symptom.count += 1
        if occurrence.rank is not None:
            symptom.ranks |= {occurrence.rank}
        if symptom.occasion != occasion:
            symptom.occasion = occasion
            symptom.occurrences = [*symptom.occurrences[:1], *[*symptom.occurrences[1:], occurrence][1 - MAX_OCCURRENCES :]]
        elif symptom.occurrences and symptom.occurrences[-1].in_warning and occurrence.in_exception:
            symptom.occurrences = [*symptom.occurrences[:-1], occurrence]  # the failure that the warning announced
        elif symptom.occurrences and occurrence.order < symptom.occurrences[-1].order:
            occurrence.fill_unknown(symptom.occurrences[-1].values)
            symptom.occurrences = [*symptom.occurrences[:-1], occurrence]  # a message of several lines ends late
        elif symptom.occurrences:
            newest = symptom.occurrences[-1]
            newest.fill_unknown(occurrence.values)
            newest.raised |= occurrence.in_exception

    def replace(self, key: SymptomKey, order: int, occurrence: Occurrence) -> None:
        """Replace the occurrence at this place by a later exception of its chain; both are one failure."""
        symptom = self._symptoms[key]
        if symptom.occurrences and (earlier := symptom.occurrences[-1]).order == order:
            occurrence.fill_unknown(earlier.values)
            occurrence.place = occurrence.place or earlier.place
            symptom.occurrences = [*symptom.occurrences[:-1], occurrence]

    def retract(self, key: SymptomKey, order: int) -> None:
        """Take back the occurrence at this place: an exception that was handled, or that another one explains."""
        symptom = self._symptoms.get(key)
        if symptom is None:
            return
        symptom.count -= 1
        if symptom.occurrences and symptom.occurrences[-1].order == order:
            symptom.occurrences, symptom.occasion = symptom.occurrences[:-1], (-1, -1)
        if symptom.count <= 0 or not symptom.occurrences:
            del self._symptoms[key]

    def copy(self) -> SymptomTable:
        """Return a table that changes independently of this one."""
        table = SymptomTable()
        for key, symptom in self._symptoms.items():
            table._symptoms[key] = replace(symptom, occurrences=[replace(item) for item in symptom.occurrences])
        return table

    def occurrences(self) -> Iterator[Occurrence]:
        """Return the occurrences of all symptoms."""
        return (occurrence for symptom in self._symptoms.values() for occurrence in symptom.occurrences)

    def __getitem__(self, key: SymptomKey) -> Symptom:
        return self._symptoms[key]

    def __iter__(self) -> Iterator[SymptomKey]:
        return iter(self._symptoms)

    def __len__(self) -> int:
        return len(self._symptoms)


class NormalEnd(Struct, frozen=True):
    """The line in which an agent reports that its training processes ended with success."""

    order: int
    line: int
    timestamp: Timestamp
    evidence: tuple[str, ...]  # the last line of the program before it, and the line itself


class Success(NamedTuple):
    """A line in which the program reports success."""

    order: int
    line: int
    text: str


class HighestStep(NamedTuple):
    """The highest epoch and step so far, and the line that first had them."""

    epoch: float
    step: int
    order: int
    timestamp: Timestamp


class PodHistory(Struct):
    """The part of a pod's log and states that a diagnosis needs."""

    container: str = ""
    lines: int = 0
    joined: bool = False
    starts: list[tuple[int, Timestamp]] = field(default_factory=list)  # first and newest rounds and restarts: order and time
    progress: tuple[int, Timestamp] | None = None  # order and time of the newest progress line
    highest_step: HighestStep | None = None
    end: NormalEnd | None = None  # its agent has reported success
    launch: LaunchConfig | None = None
    result: RendezvousResult | None = None  # the newest rendezvous result
    state: PodChanged | None = None
    stages: dict[PodStage, int] = field(default_factory=dict)  # of its start, and the newest times of events that show them
    recent: RecentLines = field(default_factory=RecentLines)
    incidents: IncidentReader = field(default_factory=IncidentReader)
    symptoms: SymptomTable = field(default_factory=SymptomTable)
    evidence: tuple[EvidenceLine | None, EvidenceLine | None] = (None, None)  # newest rendezvous result and progress line
    readings: int = 0  # progress lines so far
    readings_before: int = 0  # those before the newest round
    ranks: tuple[int, ...] = ()  # global ranks in the newest rendezvous result
    success: Success | None = None  # the program's newest report of success
    timeouts: Timeouts = field(default_factory=Timeouts)
    newest: Occurrence | None = None  # the newest occurrence in the log
    undated_marks: list[Mark] = field(default_factory=list)  # marks whose `latest` is still unknown

    @property
    def round_start(self) -> int:
        """Order of the start of the newest round, 0 before the first one."""
        return self.starts[-1][0] if self.starts else 0

    @property
    def finished(self) -> int | None:
        """The order of the line in which its agent reported success; None without one."""
        return self.end.order if self.end else None

    @property
    def has_one_process(self) -> bool:
        """Whether the container has one training process, so that lines without a prefix are all its own.

        torchrun sets OMP_NUM_THREADS only for several processes (torch/distributed/run.py `config_from_args`).
        """
        return len(self.ranks) == 1 if self.joined else self.launch is None and _OMP_BANNER not in self.symptoms

    @property
    def has_succeeded(self) -> bool:
        """Whether the pod or its agent reported success; the view forgets that as soon as the pod has a new container."""
        return self.finished is not None or (self.state is not None and self.state.phase is PodPhase.SUCCEEDED)

    def add_start(self, order: int) -> None:
        """Record the start of a round or of a container."""
        self.readings_before = self.readings
        first, newest = self.starts[:MAX_OCCURRENCES], self.starts[MAX_OCCURRENCES:]
        self.starts = [*first, *[*newest, (order, self.recent.timestamp())][-MAX_OCCURRENCES:]]


class JobHistory:
    """The history of all pods, and the symptoms of the job as a whole."""

    def __init__(self) -> None:
        self.pods: dict[str, PodHistory] = {}
        self.job = SymptomTable()

    def pod(self, name: str) -> PodHistory:
        """Return the history of a pod; an unknown pod gets an empty one."""
        if (history := self.pods.get(name)) is None:
            history = self.pods[name] = PodHistory()
        return history

    def with_pods(self, pods: Mapping[str, PodHistory]) -> JobHistory:
        """Return a history in which these pods have other histories."""
        history = JobHistory()
        history.pods, history.job = {**self.pods, **pods}, self.job
        return history

    def find_newest_time(self) -> int | None:
        """Return the newest time with a year in the logs: it gives a year to the times that have none."""
        pods = self.pods.values()
        stamps = [occurrence.timestamp.time for pod in pods for occurrence in pod.symptoms.occurrences()]
        times = (*stamps, *(pod.progress[1].time for pod in pods if pod.progress), *(pod.recent.find_time() for pod in pods))
        return max((time for time in times if time is not None), default=None)

    def symptoms(self) -> Iterator[Symptom]:
        """Return the symptoms of the job and of all pods."""
        yield from self.job.values()
        for pod in self.pods.values():
            yield from pod.symptoms.values()


Occurrences = Iterator[Occurrence]


class JobEvidence(Struct, frozen=True):
    """The input of the checks."""

    view: JobView
    history: JobHistory
    disconnects: tuple[Occurrence, ...] = ()  # lost connections of agents and processes that had joined, and did not recover

    def occurrence(
        self, rule: str, *, pod: str = "", timestamp: Timestamp | None = None, evidence: str = "", **values: object
    ) -> Occurrence:
        """Return an occurrence of the rule."""
        history = self.history.pods.get(pod)
        return Occurrence(
            rule=BY_ID[rule],
            pod=pod,
            values={"pod": pod, **{name: str(value) for name, value in values.items()}},
            order=_AFTER_ALL_LINES,
            timestamp=timestamp or Timestamp(time=self.view.now),
            line=history.lines if history and evidence else None,
            evidence=(evidence,) if evidence else (),
        )

    @property
    def age(self) -> int:
        """Nanoseconds since the job was created."""
        job = self.view.job
        return (self.view.now or 0) - job.created if job and job.created and self.view.now else 0
