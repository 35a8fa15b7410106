"""Counts of the distinct warnings in all logs of a job, for `kfjob diagnose --warnings`."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.base.common_types import Identifier
from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.prefixes import Level, split_prefix

MAX_DISTINCT = 500
"""Distinct warnings, each with its own count; further ones only add to `uncounted`."""

_WARNING = Pattern(r"Warning: |\bWARN(?:ING)?\b|\bwarning: ")
_NUMBERS = re.compile(r"(\b[Rr]anks?[ =:]{1,2}\d+)|0x[0-9a-f]+|\d+(?:[.,]\d+)*")
"""The numbers of a text; the group is one that names a rank, which tells warnings apart."""


class DistinctWarning(Struct):
    """One distinct warning; warnings that differ only in numbers are the same, except those that name different ranks."""

    text: str  # first occurrence, without time and rank
    rule: Identifier = ""  # id of the rule that matches it
    harmless: bool = False
    count: int = 0
    pods: set[Identifier] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)


class WarningCounter:
    """The distinct warnings of all pods."""

    def __init__(self) -> None:
        self._by_text: dict[str, DistinctWarning] = {}
        self.uncounted = 0

    def add_line(self, text: str, *, pod: str, rank: int | None, rule: str, harmless: bool) -> None:
        """Count the line if it is a warning."""
        prefix, _ = split_prefix(text)
        if prefix.level is not Level.WARNING and not _WARNING.search(text):
            return
        message = text[prefix.varying :].strip()
        if not any(char.isalpha() for char in message):
            return  # a line of a banner
        key = _NUMBERS.sub(lambda match: match[1] or "#", message)
        if key not in self._by_text and len(self._by_text) >= MAX_DISTINCT:
            self.uncounted += 1
            return
        warning = self._by_text.setdefault(key, DistinctWarning(text=message, rule=rule, harmless=harmless))
        warning.count += 1
        warning.pods.add(pod)
        if rank is not None:
            warning.ranks.add(rank)

    def copy(self) -> WarningCounter:
        """Return a counter that changes independently of this one."""
        counter = WarningCounter()
        counter.uncounted = self.uncounted
        for key, warning in self._by_text.items():
            counter._by_text[key] = replace(warning, pods=set(warning.pods), ranks=set(warning.ranks))
        return counter

    def ranked(self, harmless_rules: Collection[str] = ()) -> list[DistinctWarning]:
        """Return the warnings by importance: harmless ones, also by the diagnosis, last, then by count."""
        warnings = [
            replace(warning, harmless=warning.harmless or warning.rule in harmless_rules) for warning in self._by_text.values()
        ]
        return sorted(warnings, key=lambda warning: (warning.harmless, -warning.count, warning.text))
