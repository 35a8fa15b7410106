"""One symptom at one place, and what is kept of a pod: bounded, however long the job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from kfjob.events import PodChanged
from kfjob.observe.agent_records import LaunchConfig
from kfjob.observe.diagnose.recent_lines import RecentLines
from kfjob.observe.diagnose.rule import UNKNOWN_VALUE, Rule, Subject
from kfjob.observe.diagnose.rules import OF
from kfjob.observe.diagnose.tracebacks import Tracebacks
from kfjob.observe.timestamps import Timestamp

EPISODES = 8
"""Occurrences of one symptom in one pod that are kept: the first of each round, the newest rounds."""
KINDS = 64
"""Symptoms of one pod that are told apart."""
QUOTED = 400
"""Characters of a line that are quoted."""


class Occurrence(Struct, kw_only=True):
    """One symptom at one place."""

    rule: Rule
    pod: str = ""  # "": of the job as a whole
    values: Mapping[str, str]
    order: int
    moment: Timestamp
    until: Timestamp | None = (
        None  # the next time that the log tells, where `moment` is that of a line before; or the last time
    )
    line: int | None = None
    rank: int | None = None
    evidence: tuple[str, ...] = ()
    joined: bool = False
    previous: bool = False  # the container is not the pod's newest one
    waiting: bool = False  # of a pod that had not started
    over: bool = False  # the pod started after all

    def learn(self, values: Mapping[str, str]) -> None:
        """Take what a later line of the same symptom tells and this one does not: a name follows its error two lines below."""
        if UNKNOWN_VALUE in self.values.values():
            told = {name: value for name, value in values.items() if value != UNKNOWN_VALUE}
            self.values = {
                name: told.get(name, value) if value == UNKNOWN_VALUE else value for name, value in self.values.items()
            }


class Symptom(Struct):
    """One symptom of one pod, however often it was seen."""

    rule: Rule
    count: int = 0
    episode: int = -1
    occurrences: list[Occurrence] = field(default_factory=list)


class PodHistory(Struct):
    """What is kept of one pod."""

    container: str = ""
    lines: int = 0
    joined: bool = False
    begins: list[tuple[int, Timestamp]] = field(default_factory=list)  # rounds and restarts, the newest ones
    progress: tuple[int, Timestamp] | None = None  # of the newest progress line
    finished: int | None = None  # when its agent reported success
    launch: LaunchConfig | None = None
    state: PodChanged | None = None
    recent: RecentLines = field(default_factory=RecentLines)
    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    symptoms: dict[tuple[str, str], Symptom] = field(default_factory=dict)
    said: tuple[Any, Any] = (None, None)
    handled: dict[str, tuple[str, str]] = field(default_factory=dict)  # by process: the exception it raised last
    undated: list[Occurrence] = field(default_factory=list)  # whose `until` is not known yet

    def begin(self, order: int) -> None:
        """A round or a container began."""
        self.begins = [*self.begins, (order, self.recent.timestamp())][-EPISODES:]


def match_rules(subject: Subject, text: str) -> Iterator[tuple[Rule, dict[str, str]]]:
    """Every rule about `subject` that knows the text, the best first."""
    for rule in OF[subject]:
        if (values := rule.search(text)) is not None:
            yield rule, values


def record_occurrence(
    symptoms: dict[tuple[str, str], Symptom], occurrence: Occurrence, *, episode: int, variant: str = "", count: int = 1
) -> None:
    """Count the occurrence, and keep it if it is the first of its round; else the first may learn from it."""
    key = (occurrence.rule.id, variant)
    if key not in symptoms and len(symptoms) >= KINDS:
        return
    symptom = symptoms.setdefault(key, Symptom(occurrence.rule))
    symptom.count += count
    if symptom.episode != episode:
        symptom.episode = episode
        symptom.occurrences = [*symptom.occurrences, occurrence][-EPISODES:]
    elif symptom.occurrences:
        symptom.occurrences[-1].learn(occurrence.values)
