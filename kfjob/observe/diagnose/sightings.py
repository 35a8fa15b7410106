"""One symptom at one place, and what is kept of a pod: bounded, however long the job runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from kfjob.events import PodChanged
from kfjob.observe.diagnose.rule import NOT_SAID, Rule, Subject
from kfjob.observe.diagnose.rules import OF
from kfjob.observe.diagnose.stamps import Clock, Moment
from kfjob.observe.diagnose.tracebacks import Tracebacks
from kfjob.observe.rendezvous import LaunchConfig

EPISODES = 8
"""Sightings of one symptom in one pod that are kept: the first of each round, the newest rounds."""
KINDS = 64
"""Symptoms of one pod that are told apart."""
QUOTED = 400
"""Characters of a line that are quoted."""


class Sighting(Struct, kw_only=True):
    """One symptom at one place."""

    rule: Rule
    pod: str = ""  # "": of the job as a whole
    values: Mapping[str, str]
    order: int
    moment: Moment
    until: Moment | None = None  # the next time that the log tells, where `moment` is that of a line before; or the last time
    line: int | None = None
    rank: int | None = None
    evidence: tuple[str, ...] = ()
    joined: bool = False
    previous: bool = False  # the container is not the pod's newest one
    waiting: bool = False  # of a pod that had not started
    over: bool = False  # the pod started after all

    def learn(self, values: Mapping[str, str]) -> None:
        """Take what a later line of the same symptom tells and this one does not: a name follows its error two lines below."""
        if NOT_SAID in self.values.values():
            told = {name: value for name, value in values.items() if value != NOT_SAID}
            self.values = {name: told.get(name, value) if value == NOT_SAID else value for name, value in self.values.items()}


class Track(Struct):
    """One symptom of one pod, however often it was seen."""

    rule: Rule
    count: int = 0
    episode: int = -1
    sightings: list[Sighting] = field(default_factory=list)


class PodTrace(Struct):
    """What is kept of one pod."""

    container: str = ""
    lines: int = 0
    joined: bool = False
    begins: list[tuple[int, Moment]] = field(default_factory=list)  # rounds and restarts, the newest ones
    progress: tuple[int, Moment] | None = None  # of the newest progress line
    finished: int | None = None  # when its agent reported success
    launch: LaunchConfig | None = None
    state: PodChanged | None = None
    clock: Clock = field(default_factory=Clock)
    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    tracks: dict[tuple[str, str], Track] = field(default_factory=dict)
    said: tuple[Any, Any] = (None, None)
    handled: dict[str, tuple[str, str]] = field(default_factory=dict)  # by process: the exception it raised last
    undated: list[Sighting] = field(default_factory=list)  # whose `until` is not known yet

    def begin(self, order: int) -> None:
        """A round or a container began."""
        self.begins = [*self.begins, (order, self.clock.now())][-EPISODES:]


def matches(subject: Subject, text: str) -> Iterator[tuple[Rule, dict[str, str]]]:
    """Every rule about `subject` that knows the text, the best first."""
    for rule in OF[subject]:
        if (values := rule.search(text)) is not None:
            yield rule, values


def keep(tracks: dict[tuple[str, str], Track], sighting: Sighting, *, episode: int, variant: str = "", count: int = 1) -> None:
    """Count the sighting, and keep it if it is the first of its round; else the first may learn from it."""
    key = (sighting.rule.id, variant)
    if key not in tracks and len(tracks) >= KINDS:
        return
    track = tracks.setdefault(key, Track(sighting.rule))
    track.count += count
    if track.episode != episode:
        track.episode = episode
        track.sightings = [*track.sightings, sighting][-EPISODES:]
    elif track.sightings:
        track.sightings[-1].learn(sighting.values)
