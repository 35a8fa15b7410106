"""Collection of the symptoms in a job's events, in bounded memory.

Feed every event together with the view after it; `ranking.diagnose` turns the symptoms into a diagnosis. Nearly all lines cost
one search for a few literals and nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from msgspec.structs import replace

from kfjob.base.patterns import Pattern
from kfjob.joblog.agents.agent_log import find_agent_message, is_etcd_message
from kfjob.joblog.agents.agent_records import RendezvousResult, ResultSource
from kfjob.joblog.agents.program_lines import find_program_lines
from kfjob.joblog.diagnose.engine.history import (
    MAX_OPEN_ERRORS,
    MAX_SYMPTOMS,
    HighestStep,
    JobHistory,
    NormalEnd,
    Occurrence,
    PodHistory,
)
from kfjob.joblog.diagnose.engine.incident_reader import IncidentReader
from kfjob.joblog.diagnose.engine.incidents import Incident, Mark, Relation
from kfjob.joblog.diagnose.engine.literals import is_suspicious
from kfjob.joblog.diagnose.engine.matching import (
    MAX_QUOTE,
    Explanation,
    LineMeaning,
    Repetitions,
    add_nccl_warnings,
    explain,
    mask_numbers,
)
from kfjob.joblog.diagnose.engine.program_reports import Activity
from kfjob.joblog.diagnose.engine.rank_reports import (
    MAX_WARNINGS,
    WORLD_SIZE_LITERALS,
    Timeouts,
    WorldSize,
    find_gpu,
    find_nccl_warnings,
    find_rank,
    read_nccl_warning,
    read_world_size,
)
from kfjob.joblog.diagnose.engine.recent_lines import RecentLines, find_timestamp
from kfjob.joblog.diagnose.engine.states import StateReader
from kfjob.joblog.diagnose.rule import IncidentKind, Role, Severity
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.diagnose.warnings import WarningCounter
from kfjob.joblog.events import (
    Event,
    JobChanged,
    KubernetesEvent,
    LinesSkipped,
    LogLine,
    OpenLine,
    PodChanged,
    WorkloadStatus,
)
from kfjob.joblog.lines.line_text import shorten_line
from kfjob.joblog.lines.prefixes import clean_line, split_process
from kfjob.joblog.progress.reading import Reading
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.redaction import cut_text

MAX_ANNOUNCEMENT_DISTANCE = 2
"""Lines after an error in which the program says how it goes on."""

_SINGLE_LINES = frozenset({IncidentKind.MESSAGE, IncidentKind.WARNING})
"""Kinds of incidents that one line can begin and end."""

[_NCCL_WARNING] = check_ids("nccl-warning")
"""The rule about a warning of NCCL."""
_SUMMARY_TIME = Pattern(r"\s+time\s+: ")


class Explain(Protocol):
    """A function that explains an incident of a pod."""

    def __call__(self, incident: Incident, *, pod: str) -> Explanation | None:
        """Return the explanation; None for a message that no rule knows."""


class SymptomCollector:
    """Collects the symptoms and the warnings of one job."""

    def __init__(self) -> None:
        self.lines = 0
        self._warnings = WarningCounter()
        self._repetitions = Repetitions()
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
                _add_incident(warnings, explain, name, pods[name], incident)
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
        elif isinstance(event, PodChanged | JobChanged | KubernetesEvent | WorkloadStatus):
            self._states.feed(event, self._order)

    def _add_line(self, event: LogLine, view: JobView) -> None:
        pod = self._count_lines(event, 1)
        event = shorten_line(event)
        pod.recent.append(event.time, event.text)
        self._follow_view(pod, event, view)
        _follow_program(pod, event.text)
        if pod.needs_line or is_suspicious(event.text):
            self._read_line(pod, event)
        if pod.open_errors:
            _read_later_lines(pod, event)
        if pod.undated_marks:
            _date_occurrences(pod)

    def _read_line(self, pod: PodHistory, event: LogLine) -> None:
        """Pass a line on to the incident stage."""
        text, _ = clean_line(event.text)
        if text[:1].isspace() and _SUMMARY_TIME.match(text):
            _apply_summary_time(pod, text)
        key = None if pod.incidents.is_open else (event.pod, pod.round_start, mask_numbers(text))
        if key is None or not self._count_repetition(pod, event.pod, text, key):
            self._read_incidents(pod, event.pod, text, key)
        if pod.incidents.has_exception or (pod.newest and pod.newest.rule.in_script and pod.newest.line == pod.lines):
            pod.activity.watch(pod.lines)
        pod.activity.read_success(text, order=self._order, line=pod.lines)
        if any(literal in text for literal in WORLD_SIZE_LITERALS):
            pod.world = read_world_size(pod.world, text)
        pod.timeouts.read(text, line=pod.lines, ranks=pod.ranks)

    def _count_repetition(self, pod: PodHistory, name: str, text: str, key: Hashable) -> bool:
        """Count a line that repeats an incident of one line; return whether it does so often that this is enough."""
        repetition = self._repetitions.lines.find(key)
        if repetition is None:
            return False
        meaning = repetition.meaning
        rank = find_rank(text, pod.ranks)
        self._warnings.add_line(text, pod=name, rank=rank, rule=meaning.rule, harmless=meaning.harmless)
        if meaning.symptom is not None:
            pod.symptoms.count(meaning.symptom)
        return True

    def _read_incidents(self, pod: PodHistory, name: str, text: str, key: Hashable | None) -> None:
        """Read a line that is part of an incident, or one of its own; with `key`, no incident is open."""
        timestamp, steps = pod.recent.timestamp(), pod.activity.steps
        mark = Mark(self._order, timestamp, pod.lines, pod.joined, pod.readings, pod.round_start, steps=steps)
        if not mark.timestamp.exact and len(pod.undated_marks) < MAX_SYMPTOMS:
            pod.undated_marks.append(mark)
        for incident in pod.incidents.feed(text, mark, pod.recent.before):
            occurrence = _add_incident(self._warnings, self._repetitions.explain, name, pod, incident)
            pod.newest = occurrence or pod.newest
            if occurrence and occurrence.rule.explains_end:
                pod.open_errors = [*pod.open_errors, occurrence][-MAX_OPEN_ERRORS:]
            if key is not None and incident.mark is mark and incident.kind in _SINGLE_LINES:
                self._repetitions.lines.add(key, _read_meaning(occurrence))

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
            _add_incident(self._warnings, self._repetitions.explain, name, pod, incident)
        if pod.lines:
            pod.add_start(self._order)
            for occurrence in pod.symptoms.occurrences():
                occurrence.in_previous_container = True
        pod.container, pod.lines, pod.joined, pod.end, pod.result = container, 0, False, None, None
        pod.recent, pod.incidents, pod.activity, pod.newest = RecentLines(), IncidentReader(), Activity(), None
        pod.world, pod.nccl_warnings, pod.timeouts = WorldSize(), [], Timeouts()
        pod.open_errors.clear()
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
    """Record what the program prints after an error: steps, or how it goes on."""
    pod.activity.count_step(text)
    newest = pod.newest
    if newest and newest.line and pod.lines - newest.line <= MAX_ANNOUNCEMENT_DISTANCE:
        newest.announcement.read(text)
        if newest.announcement.retried:
            pod.activity.is_watched = True


def _read_later_lines(pod: PodHistory, event: LogLine) -> None:
    """Record an ordinary line that the process of an error prints after it; a message of the agent ends the search."""
    text, _ = clean_line(event.text)
    if find_agent_message(text) is not None:
        if "elastic/multiprocessing" in text or "elastic.multiprocessing" in text:
            pod.open_errors.clear()  # a worker has failed: the lines after it are those of the end
        return
    stream, body = split_process(text)
    if is_etcd_message(text) or pod.incidents.is_open_in(stream):
        return
    for occurrence in pod.open_errors:
        if occurrence.stream == stream and occurrence.line != pod.lines:
            occurrence.later_lines.read(body, pod.recent.timestamp().since(occurrence.timestamp))
    pod.open_errors = [occurrence for occurrence in pod.open_errors if not occurrence.later_lines.is_known]


def _read_meaning(occurrence: Occurrence | None) -> LineMeaning:
    """Return what the line of this occurrence means."""
    if occurrence is None:
        return LineMeaning()
    return LineMeaning(occurrence.rule.id, occurrence.rule.severity is Severity.HARMLESS, (occurrence.rule.id, ""))


def _add_incident(
    warnings: WarningCounter, explain: Explain, name: str, pod: PodHistory, incident: Incident
) -> Occurrence | None:
    """Add the warning and the symptom that an incident of pod `name` shows; retract those that it replaces."""
    explanation = explain(incident, pod=name)
    printed = incident.printed[0]
    rank = find_rank(printed, pod.ranks)
    rule = explanation.rule if explanation else None
    harmless = rule is not None and rule.severity is Severity.HARMLESS
    warnings.add_line(printed, pod=name, rank=rank, rule=rule.id if rule else "", harmless=harmless)
    if warning := read_nccl_warning(incident):
        pod.nccl_warnings = [*pod.nccl_warnings, warning][-MAX_WARNINGS:]
    if explanation is None:
        return None
    earlier = [(item, other) for item in list(incident.chain())[1:] if (other := explain(item, pod=name))]
    if _is_explained_by(explanation, [other for _, other in earlier]):
        return None
    repeated = None  # the newest of the chain with the same symptom
    for item, other in earlier:
        if _is_replaced(other, explanation, incident.relation):
            pod.symptoms.retract(other.symptom, item.mark.order)
        elif repeated is None and other.rule is explanation.rule:
            repeated = item
    gpu = "" if rank is None else str(find_gpu(rank, pod.ranks))
    nccl_warnings = find_nccl_warnings(pod.nccl_warnings, incident, gpu=gpu)
    for nccl_warning in nccl_warnings:
        pod.symptoms.retract((_NCCL_WARNING, ""), nccl_warning.order)
    return _add_occurrence(name, pod, incident, add_nccl_warnings(explanation, nccl_warnings), rank, repeated=repeated)


def _is_explained_by(explanation: Explanation, earlier: Iterable[Explanation]) -> bool:
    """Return whether an earlier exception of the same chain explains more than this one."""
    return not explanation.is_specific and any(other.is_specific and other.rule.role is Role.CAUSE for other in earlier)


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
        after_warning=incident.after_warning,
        after_join=incident.mark.joined,
        announcement=incident.announcement,
        later_lines=incident.later_lines,
        ranks=frozenset() if rank is None else frozenset({rank}),
        stream=incident.stream,
        first_position=incident.first_position,
        last_position=incident.last_position,
    )
    if repeated is not None and key in pod.symptoms:
        pod.symptoms.replace(key, repeated.mark.order, occurrence)
        return occurrence
    progress = incident.mark.steps + incident.mark.readings if incident.kind is IncidentKind.EXCEPTION else 0
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
