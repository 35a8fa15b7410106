"""Collection of the symptoms in a job's events, in bounded memory.

Feed every event together with the view after it; `ranking.diagnose` turns the symptoms into a diagnosis. Nearly all lines cost
one search for a few literals and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping

from kfjob.events import (
    Event,
    JobChanged,
    KubernetesEvent,
    LinesSkipped,
    LogLine,
    OpenLine,
    PodChanged,
    WorkloadStatus,
)
from kfjob.observe.diagnose.occurrences import (
    MAX_QUOTE,
    MAX_SYMPTOMS,
    JobHistory,
    Occurrence,
    PodHistory,
    match_rules,
)
from kfjob.observe.diagnose.recent_lines import RecentLines, find_timestamp
from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject
from kfjob.observe.diagnose.rules import BY_ID
from kfjob.observe.diagnose.states import StateReader
from kfjob.observe.diagnose.tracebacks import HEADING, Raised, Tracebacks
from kfjob.observe.diagnose.warnings import WarningCounter
from kfjob.observe.lines import clean_line, shorten_line
from kfjob.observe.prefilter import is_suspicious
from kfjob.observe.timestamps import Timestamp
from kfjob.observe.view import JobView
from kfjob.patterns import Pattern
from kfjob.redaction import cut_text

AGENT_SUCCESS = "worker group successfully finished"
_RANK = Pattern(r"\[(rank|default|\w*?)(\d+)\]:")
_SUMMARY_TIME = Pattern(r"\s+time\s+: ")

_RuleMatch = tuple[Rule, Mapping[str, str]]


class SymptomCollector:
    """Collects the symptoms and the warnings of one job."""

    def __init__(self) -> None:
        self.history = JobHistory()
        self.warnings = WarningCounter()
        self.lines = 0
        self._order = 0
        self._states = StateReader(self.history)

    def feed(self, event: Event, view: JobView) -> None:
        """Read an event, with the view after it."""
        self._order += 1
        if isinstance(event, LogLine):
            self._add_line(event, view)
        elif isinstance(event, OpenLine):
            self._follow_view(self.history.pod(event.pod), event, view)
        elif isinstance(event, LinesSkipped):
            self._count_lines(event, event.count)
        elif isinstance(event, PodChanged | JobChanged | KubernetesEvent | WorkloadStatus):
            self._states.feed(event, self._order)

    def _add_line(self, event: LogLine, view: JobView) -> None:
        pod = self._count_lines(event, 1)
        event = shorten_line(event)
        pod.recent.append(event.time, event.text)
        self._follow_view(pod, event, view)
        if pod.undated:
            _date_occurrences(pod, event)
        if pod.tracebacks.open or is_suspicious(event.text):
            self._match_line(pod, event, view)

    def _match_line(self, pod: PodHistory, event: LogLine, view: JobView) -> None:
        """Add the symptom and the warning that a suspicious line shows."""
        text, _ = clean_line(event.text)
        raised = pod.tracebacks.feed(text)
        if pod.tracebacks.in_body or HEADING in text:
            return
        rank = _find_rank(text, event.pod, view)
        if _SUMMARY_TIME.match(text):
            _apply_summary_time(pod, text)
        match: _RuleMatch | None = next(match_rules(Subject.LOG, text), None)
        if match is None and raised:
            match = _match_exception(raised, event.pod)
        harmless = match is not None and match[0].severity is Severity.HARMLESS
        self.warnings.add_line(text, pod=event.pod, rank=rank, rule=match[0].id if match else "", harmless=harmless)
        if match:
            self._add_occurrence(event.pod, match, text=text, rank=rank, raised=raised)

    def _count_lines(self, event: LogLine | LinesSkipped, count: int) -> PodHistory:
        """Count lines of the event's container, and return the history of its pod."""
        pod = self.history.pod(event.pod)
        self.lines += count
        if event.container_id != pod.container and (event.container_id or not pod.lines):
            self._start_container(pod, event.container_id)
        pod.lines += count
        return pod

    def _start_container(self, pod: PodHistory, container: str) -> None:
        if pod.lines:
            pod.add_start(self._order)
            for occurrence in pod.symptoms.occurrences():
                occurrence.in_previous_container = True
        pod.container, pod.lines, pod.joined, pod.finished = container, 0, False, None
        pod.recent, pod.tracebacks = RecentLines(), Tracebacks()
        pod.undated.clear()

    def _follow_view(self, pod: PodHistory, event: LogLine | OpenLine, view: JobView) -> None:
        """Record what the view found in the line: a round, progress, a launch or an end."""
        if event.pod not in view.pods:
            return
        log = view.pods[event.pod].log
        result_line, reading_line = pod.evidence
        if log.result_line is not result_line and log.result_line is not None:
            pod.add_start(self._order)
            pod.joined = True
        if log.reading_line is not reading_line and log.reading_line is not None:
            pod.progress = (self._order, pod.recent.timestamp())
        pod.evidence = (log.result_line, log.reading_line)
        pod.launch = log.launch or pod.launch
        if AGENT_SUCCESS in event.text:
            pod.finished = self._order

    def _add_occurrence(self, name: str, match: _RuleMatch, *, text: str, rank: int | None, raised: Raised | None) -> None:
        pod = self.history.pod(name)
        rule, values = match
        variant = values.get("what", "") if rule.subject is Subject.EXCEPTION else ""
        key = (rule.id, variant)
        is_known = key in pod.symptoms
        if raised:
            if raised.chained and (handled := pod.last_exceptions.pop(raised.prefix, None)):
                pod.symptoms.remove_exception(handled)
            pod.last_exceptions[raised.prefix] = key
        if is_known and text.startswith("  "):
            return  # torchrun's summary repeats what the process has printed
        evidence = (*(raised.frame if raised else ()), text.strip())
        occurrence = Occurrence(
            rule=rule,
            pod=name,
            values=values,
            order=self._order,
            timestamp=pod.recent.timestamp(),
            line=pod.lines,
            rank=rank,
            place=raised.location if raised else "",
            evidence=tuple(cut_text(line, MAX_QUOTE) for line in evidence),
            after_join=pod.joined,
        )
        if not occurrence.timestamp.exact and len(pod.undated) < MAX_SYMPTOMS:
            pod.undated.append(occurrence)
        pod.symptoms.add(occurrence, episode=len(pod.starts) and pod.starts[-1][0], variant=variant)


def _date_occurrences(pod: PodHistory, event: LogLine) -> None:
    """Set the upper bound of inexact times if this line has a time."""
    timestamp = Timestamp(event.time) if event.time is not None else find_timestamp(event.text)
    if timestamp:
        for occurrence in pod.undated:
            occurrence.latest = timestamp
        pod.undated.clear()


def _match_exception(raised: Raised, pod: str) -> _RuleMatch | None:
    """Return the general rule for an exception that no rule about lines matches."""
    if raised.kind.endswith(("Warning", "KeyboardInterrupt", "SystemExit")):
        return None
    what = f"{raised.kind}: {raised.message}" if raised.message else raised.kind
    values = {"what": f"`{cut_text(what, MAX_QUOTE // 2)}`", "place": raised.location or "not in the traceback", "pod": pod}
    return BY_ID["thread-died" if raised.in_thread else "exception"], values


def _find_rank(text: str, name: str, view: JobView) -> int | None:
    """Return the global rank that printed the line: from its prefix, else the pod's only rank."""
    ranks = view.pods[name].global_ranks if name in view.pods else ()
    if match := _RANK.match(text):
        number = int(match[2])
        if match[1] == "rank":
            return number
        return ranks[number] if number < len(ranks) else None
    return ranks[0] if len(ranks) == 1 else None


def _apply_summary_time(pod: PodHistory, text: str) -> None:
    """Use the time in torchrun's summary: its first worker failed then, which is more precise than the line before."""
    timestamp = find_timestamp(text)
    if timestamp is None or timestamp.time is None:
        return
    for occurrence in pod.symptoms.occurrences():
        is_cause = occurrence.rule.role is not Role.SYMPTOM
        if is_cause and not occurrence.timestamp.exact and not occurrence.in_previous_container:
            occurrence.timestamp = timestamp
