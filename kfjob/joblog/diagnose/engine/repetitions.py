"""Incidents that repeat: kfjob explains the first ones of a text, and only counts the others.

A program can print the same error for each of a million samples. Texts that differ only in their numbers are the same text.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Generic, TypeVar

from msgspec import Struct

from kfjob.joblog.diagnose.engine.history import SymptomKey
from kfjob.joblog.diagnose.engine.incidents import Incident
from kfjob.joblog.diagnose.engine.matching import Explanation, explain

MAX_EXPLAINED = 1000
"""Incidents with the same text, apart from the numbers in it, that kfjob explains in a round of a pod; it counts others."""
MAX_TEXTS = 1024
"""Texts of incidents to count at the same time; the one that was not repeated for longest is dropped first."""
_NUMBER = re.compile(r"0x[0-9a-f]++|\d++")
_T = TypeVar("_T")


class Repetition(Struct, Generic[_T]):
    """How often a text occurred, and what its newest occurrence meant."""

    count: int
    meaning: _T


class RepeatedTexts(Generic[_T]):
    """A bounded table of texts."""

    def __init__(self) -> None:
        self._texts: dict[Hashable, Repetition[_T]] = {}

    def add(self, key: Hashable, meaning: _T) -> None:
        """Count the text, with its newest meaning."""
        before = self._texts.pop(key, None)
        if before is None and len(self._texts) >= MAX_TEXTS:
            del self._texts[next(iter(self._texts))]
        self._texts[key] = Repetition(1 if before is None else before.count + 1, meaning)

    def find(self, key: Hashable) -> Repetition[_T] | None:
        """Return a text that has occurred `MAX_EXPLAINED` times, with its newest meaning; None for another text."""
        repetition = self._texts.get(key)
        if repetition is None or repetition.count < MAX_EXPLAINED:
            return None
        self._texts[key] = self._texts.pop(key)
        return repetition

    def __len__(self) -> int:
        return len(self._texts)


class LineMeaning(Struct, frozen=True):
    """What a line meant that was an incident of its own."""

    rule: str = ""  # id of the rule that explains it; "" without one
    harmless: bool = False
    symptom: SymptomKey | None = None  # the symptom that it shows


class Repetitions:
    """The incidents of all pods that repeat."""

    def __init__(self) -> None:
        self._explanations: RepeatedTexts[Explanation | None] = RepeatedTexts()
        self.lines: RepeatedTexts[LineMeaning] = RepeatedTexts()

    def explain(self, incident: Incident, *, pod: str) -> Explanation | None:
        """Return the explanation of the incident, or after `MAX_EXPLAINED` of them that of an earlier one with its text."""
        text = mask_numbers("\n".join((*incident.lines, *incident.stack)))
        key = (
            *(pod, incident.mark.round_start, incident.kind, incident.name, incident.location, text, len(incident.lines)),
            *(incident.in_thread, incident.is_cut, incident.wrapped, incident.dump.frames if incident.dump else ()),
        )
        if (known := self._explanations.find(key)) is not None:
            return known.meaning
        explanation = explain(incident, pod=pod)
        self._explanations.add(key, explanation)
        return explanation


def mask_numbers(text: str) -> str:
    """Return the text with the same digit in place of each whole number, and of each address."""
    return _NUMBER.sub("1", text)
