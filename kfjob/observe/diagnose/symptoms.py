"""What a job's events show, kept in bounded memory until somebody asks what was wrong.

Feed every event with the view after it; `answer.diagnose` makes the answer. Nearly every line costs one look for a handful of
literals and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kfjob.events import Event, JobChanged, KubernetesEvent, LogLine, PodChanged, WorkloadStatus
from kfjob.observe.diagnose.occurrences import KINDS, QUOTED, Occurrence, PodHistory, Symptom, match_rules, record_occurrence
from kfjob.observe.diagnose.recent_lines import RecentLines, find_timestamp
from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject
from kfjob.observe.diagnose.rules import BY_ID
from kfjob.observe.diagnose.states import StateSymptoms
from kfjob.observe.diagnose.tracebacks import HEADING, Raised, Tracebacks
from kfjob.observe.diagnose.warnings import WarningCounter
from kfjob.observe.lines import clean_line
from kfjob.observe.prefilter import is_suspicious
from kfjob.observe.timestamps import Timestamp
from kfjob.observe.view import JobView

FINISHED = "worker group successfully finished"
_RANK = re.compile(r"\[(rank|default|\w*?)(\d+)\]:")
_SUMMARY_TIME = re.compile(r"^\s+time\s+: ")


class SymptomCollector:
    """Collects; one for each job that is looked at."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.pods: dict[str, PodHistory] = {}
        self.job: dict[tuple[str, str], Symptom] = {}
        self.warnings = WarningCounter()
        self.lines = 0
        self._order = 0
        self._states = StateSymptoms(self.pods, self.job)

    def feed(self, event: Event, view: JobView) -> None:
        """One more event, and the view after it."""
        self._order += 1
        if isinstance(event, LogLine):
            self._line(event, view)
        elif isinstance(event, PodChanged | JobChanged | KubernetesEvent | WorkloadStatus):
            self._states.feed(event, self._order)

    def symptoms(self) -> Iterator[Symptom]:
        """Every symptom that was seen."""
        yield from self.job.values()
        for pod in self.pods.values():
            yield from pod.symptoms.values()

    def _line(self, event: LogLine, view: JobView) -> None:
        pod = self.pods.setdefault(event.pod, PodHistory())
        if event.open:
            self._follow(pod, event, view)
            return
        self.lines += 1 + event.skipped
        if event.container_id != pod.container and (event.container_id or not pod.lines):
            self._new_container(pod, event.container_id)
        pod.lines += 1 + event.skipped
        pod.recent.append(event.time, event.text)
        self._follow(pod, event, view)
        text = event.text
        if pod.undated and (moment := Timestamp(event.time) if event.time is not None else find_timestamp(text)):
            for occurrence in pod.undated:
                occurrence.until = moment
            pod.undated.clear()
        if not pod.tracebacks.waiting and not is_suspicious(text):
            return
        plain, _ = clean_line(text)
        raised = pod.tracebacks.feed(plain)
        if pod.tracebacks.quoting or HEADING in plain:
            return
        rank = _rank(plain, event.pod, view)
        if _SUMMARY_TIME.match(plain):
            _date(pod, plain)
        found = next(match_rules(Subject.LOG, plain), None)
        if found is None and raised:
            found = _unknown(raised, event.pod)
        harmless = found is not None and found[0].severity is Severity.HARMLESS
        self.warnings.note(plain, pod=event.pod, rank=rank, rule=found[0].id if found else "", harmless=harmless)
        if found:
            self._seen(pod, event.pod, *found, plain=plain, rank=rank, raised=raised)

    def _new_container(self, pod: PodHistory, container: str) -> None:
        if pod.lines:
            pod.begin(self._order)
            for symptom in pod.symptoms.values():
                for occurrence in symptom.occurrences:
                    occurrence.previous = True
        pod.container, pod.lines, pod.joined, pod.finished = container, 0, False, None
        pod.recent, pod.tracebacks = RecentLines(), Tracebacks()
        pod.undated.clear()

    def _follow(self, pod: PodHistory, event: LogLine, view: JobView) -> None:
        """What the view has made of the line: a round, progress, a launch, an end."""
        if event.pod not in view.pods:
            return
        log = view.pods[event.pod].log
        result, reading = pod.said
        if log.result_line is not result and log.result_line is not None:
            pod.begin(self._order)
            pod.joined = True
        if log.reading_line is not reading and log.reading_line is not None:
            pod.progress = (self._order, pod.recent.timestamp())
        pod.said = (log.result_line, log.reading_line)
        pod.launch = log.launch or pod.launch
        if FINISHED in event.text:
            pod.finished = self._order

    def _seen(
        self,
        pod: PodHistory,
        name: str,
        rule: Rule,
        values: Mapping[str, str],
        *,
        plain: str,
        rank: int | None,
        raised: Raised | None,
    ) -> None:
        variant = values.get("what", "") if rule.subject is Subject.EXCEPTION else ""
        known = (rule.id, variant) in pod.symptoms
        if raised:
            if raised.again and (before := pod.handled.pop(raised.lead, None)):
                _forget(pod, before)
            pod.handled[raised.lead] = (rule.id, variant)
        if known and plain.startswith("  "):
            return  # torchrun's summary repeats what the process has printed
        evidence = (*(raised.frame if raised else ()), plain.strip())
        occurrence = Occurrence(
            rule=rule,
            pod=name,
            values=values,
            order=self._order,
            moment=pod.recent.timestamp(),
            line=pod.lines,
            rank=rank,
            evidence=tuple(line[:QUOTED] for line in evidence),
            joined=pod.joined,
        )
        if not occurrence.moment.exact and len(pod.undated) < KINDS:
            pod.undated.append(occurrence)
        record_occurrence(pod.symptoms, occurrence, episode=len(pod.begins) and pod.begins[-1][0], variant=variant)


def _unknown(raised: Raised, pod: str) -> tuple[Rule, dict[str, str]] | None:
    """An exception that no rule knows."""
    if raised.kind.endswith(("Warning", "KeyboardInterrupt", "SystemExit")):
        return None
    what = f"{raised.kind}: {raised.message}" if raised.message else raised.kind
    values = {"what": f"`{what[:200]}`", "place": raised.place or "not in the traceback", "pod": pod}
    return BY_ID["thread-died" if raised.thread else "exception"], values


def _forget(pod: PodHistory, key: tuple[str, str]) -> None:
    """Take back an exception that was only handled, where no rule knew it."""
    symptom = pod.symptoms.get(key)
    if symptom is None or symptom.rule.subject is not Subject.EXCEPTION:
        return
    symptom.count -= 1
    if symptom.count <= 0:
        del pod.symptoms[key]


def _rank(text: str, name: str, view: JobView) -> int | None:
    """The global rank that printed the line: by its prefix, else the pod's only one."""
    ranks = view.pods[name].global_ranks if name in view.pods else ()
    if found := _RANK.match(text):
        number = int(found[2])
        if found[1] == "rank":
            return number
        return ranks[number] if number < len(ranks) else None
    return ranks[0] if len(ranks) == 1 else None


def _date(pod: PodHistory, text: str) -> None:
    """Torchrun's summary tells when the first of its workers failed: better than the time of the line before."""
    moment = find_timestamp(text)
    if moment is None or moment.time is None:
        return
    for symptom in pod.symptoms.values():
        for occurrence in symptom.occurrences:
            if not occurrence.moment.exact and not occurrence.previous and symptom.rule.role is not Role.SYMPTOM:
                occurrence.moment = moment
