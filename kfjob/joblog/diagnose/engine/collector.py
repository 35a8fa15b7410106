"""Collection of the symptoms in a job's events, in bounded memory.

Feed every event together with the view after it; `ranking.diagnose` turns the symptoms into a diagnosis. Nearly all lines cost
one search for a few literals and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.joblog.agents.agent_records import RendezvousResult, ResultSource
from kfjob.joblog.agents.program_lines import find_program_lines
from kfjob.joblog.diagnose.engine.history import (
    MAX_SYMPTOMS,
    HighestStep,
    JobHistory,
    NormalEnd,
    Occurrence,
    PodHistory,
    Success,
)
from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Incident, Mark, Relation
from kfjob.joblog.diagnose.engine.line_reports import RecentLines, Timeouts, find_rank, find_timestamp, reports_success
from kfjob.joblog.diagnose.engine.matching import MAX_LINES, MAX_QUOTE, Explanation, explain, is_suspicious
from kfjob.joblog.diagnose.engine.printed_events import read_printed_event
from kfjob.joblog.diagnose.engine.states import StateReader
from kfjob.joblog.diagnose.rule import IncidentKind, Role, Severity
from kfjob.joblog.diagnose.warnings import WarningCounter
from kfjob.joblog.events import (
    Event,
    KubernetesEvent,
    LinesSkipped,
    LogLine,
    OpenLine,
    StateEvent,
    WorkloadStatus,
)
from kfjob.joblog.lines.line_text import shorten_line
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.progress.reading import Reading
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.redaction import cut_text

MAX_ANNOUNCEMENT_DISTANCE = 2
"""Lines after an error in which the program says how it goes on."""

_SUMMARY_TIME = Pattern(r"\s+time\s+: ")


class SymptomCollector:
    """Collects the symptoms and the warnings of one job."""

    def __init__(self) -> None:
        self.lines = 0
        self._warnings = WarningCounter()
        self._order = 0
        self._history = JobHistory()
        self._states = StateReader(self._history)

    @property
    def history(self) -> JobHistory:
        """The history of the job as it is if all logs end here. The collector does not change by it."""
        return self._assess_open()[0]

    @property
    def warnings(self) -> WarningCounter:
        """The warnings of the job as they are if all logs end here. The collector does not change by it."""
        return self._assess_open()[1]

    def _assess_open(self) -> tuple[JobHistory, WarningCounter]:
        """Return history and warnings with the incidents that have not ended; they are copies where these change them."""
        incidents = {name: tuple(pod.incidents.open_incidents()) for name, pod in self._history.pods.items()}
        if not any(incidents.values()):
            return self._history, self._warnings
        warnings, pods = self._warnings.copy(), {}
        for name in (name for name, items in incidents.items() if items):
            pod = self._history.pods[name]
            pods[name] = replace(pod, symptoms=pod.symptoms.copy())
            for incident in incidents[name]:
                _add_incident(warnings, name, pods[name], incident)
        return self._history.with_pods(pods), warnings

    def feed(self, event: Event, view: JobView) -> None:
        """Read an event, with the view after it."""
        self._order += 1
        if isinstance(event, LogLine):
            self._add_line(event, view)
        elif isinstance(event, OpenLine):
            self._follow_view(self._history.pod(event.pod), event, view)
        elif isinstance(event, LinesSkipped):
            self._count_lines(event, event.count)
        elif isinstance(event, StateEvent | KubernetesEvent | WorkloadStatus):
            self._states.feed(event, self._order)

    def _add_line(self, event: LogLine, view: JobView) -> None:
        pod = self._count_lines(event, 1)
        event = shorten_line(event)
        pod.recent.append(event.time, event.text)
        self._follow_view(pod, event, view)
        _follow_program(pod, event.text)
        if printed := read_printed_event(event.text, pod=event.pod):
            self._states.feed(printed, self._order, line=pod.lines)
        elif pod.incidents.is_open or is_suspicious(event.text):
            self._read_line(pod, event)
        if pod.undated_marks:
            _date_occurrences(pod)

    def _read_line(self, pod: PodHistory, event: LogLine) -> None:
        """Pass a line on to the incident stage."""
        text, _ = clean_line(event.text)
        if text[:1].isspace() and _SUMMARY_TIME.match(text):
            _apply_summary_time(pod, text)
        self._read_incidents(pod, event.pod, text)
        if reports_success(text):
            pod.success = Success(self._order, pod.lines, text.strip())
        pod.timeouts.read(text, line=pod.lines, ranks=pod.ranks)

    def _read_incidents(self, pod: PodHistory, name: str, text: str) -> None:
        """Read a line that is part of an incident, or one of its own."""
        mark = Mark(self._order, pod.recent.timestamp(), pod.lines, pod.joined, pod.readings, pod.round_start)
        if not mark.timestamp.exact and len(pod.undated_marks) < MAX_SYMPTOMS:
            pod.undated_marks.append(mark)
        for incident in pod.incidents.feed(text, mark, pod.recent.before):
            pod.newest = _add_incident(self._warnings, name, pod, incident) or pod.newest

    def _count_lines(self, event: LogLine | LinesSkipped, count: int) -> PodHistory:
        """Count lines of the event's container, and return the history of its pod."""
        pod = self._history.pod(event.pod)
        self.lines += count
        if event.container_id != pod.container and (event.container_id or not pod.lines):
            self._start_container(event.pod, pod, event.container_id)
        pod.lines += count
        return pod

    def _start_container(self, name: str, pod: PodHistory, container: str) -> None:
        for incident in pod.incidents.flush():
            _add_incident(self._warnings, name, pod, incident)
        if pod.lines:
            pod.add_start(self._order)
            for occurrence in pod.symptoms.occurrences():
                occurrence.in_previous_container = True
        pod.container, pod.lines, pod.joined, pod.end, pod.result = container, 0, False, None, None
        pod.recent, pod.incidents, pod.success, pod.newest = RecentLines(), IncidentReader(), None, None
        pod.timeouts = Timeouts()
        pod.undated_marks.clear()

    def _follow_view(self, pod: PodHistory, event: LogLine | OpenLine, view: JobView) -> None:
        """Record what the view found in the line: a round, progress, a launch or an end."""
        if event.pod not in view.pods:
            return
        log = view.pods[event.pod].log
        pod.ranks = view.pods[event.pod].global_ranks
        result_line, reading_line = pod.evidence
        if log.result_line is not result_line and log.result is not None:
            if pod.result is None or _is_new_round(pod.result, log.result):
                pod.add_start(self._order)
            pod.joined, pod.result = True, log.result
        if log.reading is not None and log.reading_line is not reading_line and not log.reading.is_empty_bar:
            pod.progress = (self._order, pod.recent.timestamp())
            pod.readings += 1
            place = _find_place(pod, log.reading, view.training if view.training.pod == event.pod else None)
            if pod.highest_step is None or place > (pod.highest_step.epoch, pod.highest_step.step):
                pod.highest_step = HighestStep(*place, self._order, pod.recent.timestamp())
        pod.evidence = (log.result_line, log.reading_line)
        pod.launch = log.launch or pod.launch
        if not log.finished:
            pod.end = None
        elif pod.end is None:
            pod.end = _read_end(pod, event.text, self._order)


def _read_end(pod: PodHistory, text: str, order: int) -> NormalEnd:
    """Return the end that the agent reports in the newest line."""
    evidence = (*find_program_lines(pod.recent.texts())[-1:], text.strip())
    return NormalEnd(order, pod.lines, pod.recent.timestamp(), tuple(cut_text(item, MAX_QUOTE) for item in evidence))


def _find_place(pod: PodHistory, reading: Reading, training: Training | None) -> tuple[float, int]:
    """Return the epoch and the step of the run; where no line has them, the number of lines in this round.

    `training` is that of the job if it follows this pod: it knows the steps of earlier epochs.
    """
    if reading.step is not None:
        follows = training is not None and training.step == reading.step and training.run_step is not None
        step = training.run_step if training and follows else reading.step
        return reading.epoch or 0.0, step or 0
    return (0.0, pod.readings - pod.readings_before) if reading.epoch is None else (reading.epoch, -1)


def _follow_program(pod: PodHistory, text: str) -> None:
    """Record whether the program says after an error how it goes on."""
    newest = pod.newest
    if newest and newest.line and pod.lines - newest.line <= MAX_ANNOUNCEMENT_DISTANCE:
        newest.announcement.read(text)


def _add_incident(warnings: WarningCounter, name: str, pod: PodHistory, incident: Incident) -> Occurrence | None:
    """Add the warning and the symptom that an incident of pod `name` shows; retract those that it replaces."""
    explanation = explain(incident, pod=name)
    printed = incident.printed[0]
    rank = find_rank(printed, pod.ranks)
    rule = explanation.rule if explanation else None
    harmless = rule is not None and rule.severity is Severity.HARMLESS
    warnings.add_line(printed, pod=name, rank=rank, rule=rule.id if rule else "", harmless=harmless)
    if explanation is None:
        return None
    earlier = [(item, other) for item in list(incident.chain())[1:] if (other := explain(item, pod=name))]
    if _is_explained_by(explanation, [other for _, other in earlier]):
        return None
    is_wrapper = incident.relation is Relation.WRAPS and not explanation.is_specific
    if is_wrapper and _quote_wrapper(pod, earlier, incident):
        return None
    repeated = None  # the newest of the chain with the same symptom
    for item, other in earlier:
        if _is_replaced(other, explanation, incident.relation):
            pod.symptoms.retract(other.symptom, item.mark.order)
        elif repeated is None and other.rule is explanation.rule:
            repeated = item
    return _add_occurrence(name, pod, incident, explanation, rank, repeated=repeated)


def _is_explained_by(explanation: Explanation, earlier: Iterable[Explanation]) -> bool:
    """Return whether an earlier exception of the same chain explains more than this one."""
    return not explanation.is_specific and any(other.is_specific and other.rule.role is Role.CAUSE for other in earlier)


def _quote_wrapper(pod: PodHistory, earlier: Iterable[tuple[Incident, Explanation]], wrapper: Incident) -> bool:
    """Quote an exception below the first one of its chain, which is its cause; return whether that one is known."""
    for item, other in earlier:
        symptom = pod.symptoms.get(other.symptom)
        cause = symptom.occurrences[-1] if symptom and symptom.occurrences else None
        if cause is not None and cause.order == item.mark.order:
            cause.evidence = (*cause.evidence, cut_text(wrapper.printed[0].strip(), MAX_QUOTE))[:MAX_LINES]
            return True
    return False


def _is_replaced(earlier: Explanation, explanation: Explanation, relation: Relation) -> bool:
    """Return whether this exception explains more than the earlier one of the same chain."""
    is_cause = explanation.is_specific and explanation.rule.role is Role.CAUSE
    return is_cause or not earlier.is_specific or relation is Relation.EXPLAINS


def _add_occurrence(
    name: str, pod: PodHistory, incident: Incident, explanation: Explanation, rank: int | None, *, repeated: Incident | None
) -> Occurrence | None:
    """Add the occurrence of an incident; it takes the place of `repeated`, an earlier one of its chain."""
    key = explanation.symptom
    if key in pod.symptoms and incident.printed[0].startswith("  "):
        return None  # torchrun's summary repeats what the process has printed
    occurrence = Occurrence(
        rule=explanation.rule,
        pod=name,
        values=explanation.values,
        order=incident.mark.order,
        timestamp=incident.mark.timestamp,
        mark=incident.mark,
        line=incident.mark.line,
        rank=rank,
        place=incident.location,
        evidence=explanation.evidence,
        context=explanation.context,
        in_exception=incident.kind is IncidentKind.EXCEPTION,
        in_warning=incident.kind is IncidentKind.WARNING or incident.in_warning,
        after_join=incident.mark.joined,
        announcement=incident.announcement,
        stream=incident.stream,
        first_position=incident.first_position,
        last_position=incident.last_position,
    )
    if repeated is not None and key in pod.symptoms:
        pod.symptoms.replace(key, repeated.mark.order, occurrence)
        return occurrence
    progress = incident.mark.readings if incident.kind is IncidentKind.EXCEPTION else 0
    pod.symptoms.add(occurrence, occasion=(incident.mark.round_start, progress), variant=key[1])
    return occurrence


def _is_new_round(before: RendezvousResult, result: RendezvousResult) -> bool:
    """Return whether the result belongs to another round: every line of a block repeats it, and others may precede it."""
    if result.line == before.line:
        return False
    if result.source is ResultSource.EVENT or before.source is not ResultSource.BLOCK:
        return (result.group_rank, result.restart_count or 0) != (before.group_rank, before.restart_count or 0)
    return True


def _date_occurrences(pod: PodHistory) -> None:
    """Set the upper bound of inexact times if the newest line has a time."""
    timestamp = pod.recent.timestamp()
    if timestamp.exact:
        for mark in pod.undated_marks:
            mark.latest = timestamp
        pod.undated_marks.clear()


def _apply_summary_time(pod: PodHistory, text: str) -> None:
    """Use the time in torchrun's summary: its first worker failed then, which is more precise than the line before."""
    timestamp = find_timestamp(text)
    if timestamp is None or timestamp.time is None:
        return
    for occurrence in pod.symptoms.occurrences():
        is_cause = occurrence.rule.role is not Role.SYMPTOM
        if is_cause and not occurrence.timestamp.exact and not occurrence.in_previous_container:
            occurrence.timestamp = timestamp
