"""Every distinct warning of a run, counted: what has to be cleared before a run counts as clean."""

from __future__ import annotations

import re

from msgspec import Struct, field

DISTINCT = 500
"""Warnings that are told apart; what comes on top is only counted."""

_WARNING = re.compile(r"\w*Warning: |^\[?W\d{4} \d\d:|\bWARN(?:ING)?\b|\bwarning: ")
_LEADS = re.compile(
    r"^(?:\[(?:rank|default|[a-z]+)\d+\]:? ?|\[?[IWEFCV]\d{4} [\d:.]+ [^\]]*\] ?|\[?\d{4}-\d\d-\d\d[ T_][\d:.,]+\]? ?)+"
)
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+(?:[.,]\d+)*")


class DistinctWarning(Struct):
    """One distinct warning."""

    text: str  # as it was first printed, without time and rank
    rule: str = ""  # the rule that knows it
    harmless: bool = False
    count: int = 0
    pods: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)


class WarningCounter:
    """The warnings of all pods."""

    def __init__(self) -> None:
        """Nothing was noted."""
        self._by_text: dict[str, DistinctWarning] = {}
        self.uncounted = 0

    def note(self, text: str, *, pod: str, rank: int | None, rule: str, harmless: bool) -> None:
        """Count the line, if it warns of anything."""
        if not _WARNING.search(text):
            return
        message = _LEADS.sub("", text).strip()
        if not any(char.isalpha() for char in message):
            return  # a line of a banner
        key = _NUMBERS.sub("#", message)
        if key not in self._by_text and len(self._by_text) >= DISTINCT:
            self.uncounted += 1
            return
        noted = self._by_text.setdefault(key, DistinctWarning(text=message, rule=rule, harmless=harmless))
        noted.count += 1
        noted.pods.add(pod)
        if rank is not None:
            noted.ranks.add(rank)

    def ranked(self) -> list[DistinctWarning]:
        """Those that matter first, then by how often."""
        return sorted(self._by_text.values(), key=lambda one: (one.harmless, -one.count, one.text))
