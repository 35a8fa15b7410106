"""What a job's events show, kept in bounded memory until somebody asks what was wrong.

Feed every event with the view after it; `answer.diagnose` makes the answer. Nearly every line costs one look for a handful of
literals and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kfjob.events import Event, JobChanged, KubernetesEvent, LogLine, PodChanged, WorkloadStatus
from kfjob.observe.diagnose.coarse import suspicious
from kfjob.observe.diagnose.noted import Notebook
from kfjob.observe.diagnose.rule import Role, Rule, Severity, Subject
from kfjob.observe.diagnose.rules import BY_ID
from kfjob.observe.diagnose.sightings import KINDS, QUOTED, PodTrace, Sighting, Track, keep, matches
from kfjob.observe.diagnose.stamps import Clock, Moment, written
from kfjob.observe.diagnose.states import States
from kfjob.observe.diagnose.tracebacks import HEADING, Raised, Tracebacks
from kfjob.observe.lines import clean
from kfjob.observe.view import JobView

FINISHED = "worker group successfully finished"
_RANK = re.compile(r"\[(rank|default|\w*?)(\d+)\]:")
_SUMMARY_TIME = re.compile(r"^\s+time\s+: ")


class Symptoms:
    """Collects; one for each job that is looked at."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.pods: dict[str, PodTrace] = {}
        self.job: dict[tuple[str, str], Track] = {}
        self.notebook = Notebook()
        self.lines = 0
        self._order = 0
        self._states = States(self.pods, self.job)

    def feed(self, event: Event, view: JobView) -> None:
        """One more event, and the view after it."""
        self._order += 1
        if isinstance(event, LogLine):
            self._line(event, view)
        elif isinstance(event, PodChanged | JobChanged | KubernetesEvent | WorkloadStatus):
            self._states.feed(event, self._order)

    def tracks(self) -> Iterator[Track]:
        """Every symptom that was seen."""
        yield from self.job.values()
        for pod in self.pods.values():
            yield from pod.tracks.values()

    def _line(self, event: LogLine, view: JobView) -> None:
        pod = self.pods.setdefault(event.pod, PodTrace())
        if event.open:
            self._follow(pod, event, view)
            return
        self.lines += 1 + event.skipped
        if event.container_id != pod.container and (event.container_id or not pod.lines):
            self._new_container(pod, event.container_id)
        pod.lines += 1 + event.skipped
        pod.clock.pass_by(event.time, event.text)
        self._follow(pod, event, view)
        text = event.text
        if pod.undated and (moment := Moment(event.time) if event.time is not None else written(text)):
            for sighting in pod.undated:
                sighting.until = moment
            pod.undated.clear()
        if not pod.tracebacks.waiting and not suspicious(text):
            return
        plain, _ = clean(text)
        raised = pod.tracebacks.feed(plain)
        if pod.tracebacks.quoting or HEADING in plain:
            return
        rank = _rank(plain, event.pod, view)
        if _SUMMARY_TIME.match(plain):
            _date(pod, plain)
        found = next(matches(Subject.LOG, plain), None)
        if found is None and raised:
            found = _unknown(raised, event.pod)
        harmless = found is not None and found[0].severity is Severity.HARMLESS
        self.notebook.note(plain, pod=event.pod, rank=rank, rule=found[0].id if found else "", harmless=harmless)
        if found:
            self._seen(pod, event.pod, *found, plain=plain, rank=rank, raised=raised)

    def _new_container(self, pod: PodTrace, container: str) -> None:
        if pod.lines:
            pod.begin(self._order)
            for track in pod.tracks.values():
                for sighting in track.sightings:
                    sighting.previous = True
        pod.container, pod.lines, pod.joined, pod.finished = container, 0, False, None
        pod.clock, pod.tracebacks = Clock(), Tracebacks()
        pod.undated.clear()

    def _follow(self, pod: PodTrace, event: LogLine, view: JobView) -> None:
        """What the view has made of the line: a round, progress, a launch, an end."""
        if event.pod not in view.pods:
            return
        log = view.pods[event.pod].log
        result, reading = pod.said
        if log.result_said is not result and log.result_said is not None:
            pod.begin(self._order)
            pod.joined = True
        if log.reading_said is not reading and log.reading_said is not None:
            pod.progress = (self._order, pod.clock.now())
        pod.said = (log.result_said, log.reading_said)
        pod.launch = log.launch or pod.launch
        if FINISHED in event.text:
            pod.finished = self._order

    def _seen(
        self,
        pod: PodTrace,
        name: str,
        rule: Rule,
        values: Mapping[str, str],
        *,
        plain: str,
        rank: int | None,
        raised: Raised | None,
    ) -> None:
        variant = values.get("what", "") if rule.subject is Subject.EXCEPTION else ""
        known = (rule.id, variant) in pod.tracks
        if raised:
            if raised.again and (before := pod.handled.pop(raised.lead, None)):
                _forget(pod, before)
            pod.handled[raised.lead] = (rule.id, variant)
        if known and plain.startswith("  "):
            return  # torchrun's summary repeats what the process has printed
        evidence = (*(raised.frame if raised else ()), plain.strip())
        sighting = Sighting(
            rule=rule,
            pod=name,
            values=values,
            order=self._order,
            moment=pod.clock.now(),
            line=pod.lines,
            rank=rank,
            evidence=tuple(line[:QUOTED] for line in evidence),
            joined=pod.joined,
        )
        if not sighting.moment.exact and len(pod.undated) < KINDS:
            pod.undated.append(sighting)
        keep(pod.tracks, sighting, episode=len(pod.begins) and pod.begins[-1][0], variant=variant)


def _unknown(raised: Raised, pod: str) -> tuple[Rule, dict[str, str]] | None:
    """An exception that no rule knows."""
    if raised.kind.endswith(("Warning", "KeyboardInterrupt", "SystemExit")):
        return None
    what = f"{raised.kind}: {raised.message}" if raised.message else raised.kind
    values = {"what": f"`{what[:200]}`", "place": raised.place or "not in the traceback", "pod": pod}
    return BY_ID["thread-died" if raised.thread else "exception"], values


def _forget(pod: PodTrace, key: tuple[str, str]) -> None:
    """Take back an exception that was only handled, where no rule knew it."""
    track = pod.tracks.get(key)
    if track is None or track.rule.subject is not Subject.EXCEPTION:
        return
    track.count -= 1
    if track.count <= 0:
        del pod.tracks[key]


def _rank(text: str, name: str, view: JobView) -> int | None:
    """The global rank that printed the line: by its prefix, else the pod's only one."""
    ranks = view.pods[name].global_ranks if name in view.pods else ()
    if found := _RANK.match(text):
        number = int(found[2])
        if found[1] == "rank":
            return number
        return ranks[number] if number < len(ranks) else None
    return ranks[0] if len(ranks) == 1 else None


def _date(pod: PodTrace, text: str) -> None:
    """Torchrun's summary tells when the first of its workers failed: better than the time of the line before."""
    moment = written(text)
    if moment is None or moment.time is None:
        return
    for track in pod.tracks.values():
        for sighting in track.sightings:
            if not sighting.moment.exact and not sighting.previous and track.rule.role is not Role.SYMPTOM:
                sighting.moment = moment
