"""The collectives in which ranks timed out: they show which ranks took another path, and which did not report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from kfjob.observe.master import describe_ranks
from kfjob.patterns import Pattern
from kfjob.redaction import cut_text

MAX_RANKS = 64
"""Ranks of a pod with a timeout to remember."""
MAX_QUOTE = 300
"""Characters of a quoted line about a timeout."""

_LITERAL = "Watchdog caught collective operation timeout"
_TIMEOUT = Pattern(
    r"\[(?:PG ID \d+ PG GUID 0\(default_pg\) |PG 0 )?Rank (\d{1,6})\] "
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w{1,40})"
)
"""Only of the default group: the ranks of other groups count from 0, and each group numbers its own collectives."""


class Collective(NamedTuple):
    """A collective of the default process group."""

    number: int
    operation: str

    def __str__(self) -> str:
        """Return `ALLREDUCE 41`."""
        return f"{self.operation} {self.number}"


class Timeout(NamedTuple):
    """A collective in which a rank timed out, and the line that says so."""

    collective: Collective
    line: str


def remember_timeout(timeouts: dict[int, Timeout], text: str) -> None:
    """Add the timeout of a rank in this line, if there is one and it is the first of its rank."""
    if _LITERAL in text and len(timeouts) < MAX_RANKS and (match := _TIMEOUT.search(text)):
        timeouts.setdefault(int(match[1]), Timeout(Collective(int(match[2]), match[3]), cut_text(text, MAX_QUOTE)))


def describe_difference(collectives: Mapping[int, Collective]) -> tuple[list[int], str] | None:
    """Return the ranks that took another path than most, and what they did; None if all ranks timed out in one collective."""
    counts = Counter(collectives.values())
    if len(counts) == 1 or not counts:
        return None
    usual = max(counts, key=lambda collective: (counts[collective], collective.number))
    others = sorted(rank for rank, collective in collectives.items() if collective != usual)
    parts = []
    for collective in sorted({collectives[rank] for rank in others}):
        ranks = [rank for rank in others if collectives[rank] == collective]
        parts.append(f"{describe_ranks(ranks)} in {collective}")
    most = [rank for rank, collective in collectives.items() if collective == usual]
    return others, f"{', '.join(parts)}, and {describe_ranks(most)} in {usual}"
