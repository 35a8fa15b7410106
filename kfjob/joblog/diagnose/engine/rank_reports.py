"""The collectives in which ranks timed out: they show which ranks took another path, and which did not report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.ranks import find_rank
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.redaction import cut_text

MAX_RANKS = 64
"""Ranks of a pod with a timeout to remember."""
MAX_QUOTE = 300
"""Characters of a quoted line about a timeout."""

_LITERALS = ("Watchdog caught collective operation timeout", "Timed out waiting ", "failed to pass monitoredBarrier")
_NCCL = Pattern(
    r"(?:\[(?P<group>(?:PG ID \d+ PG GUID \S{0,200} |PG \d+ )?)Rank (?P<rank>\d{1,6})\] )?"
    r"Watchdog caught collective operation timeout(?:: WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,40}))?"
)
_DEFAULT_GROUP = Pattern(r"^(?:PG ID \d+ PG GUID 0\(default_pg\) |PG 0 )?$")
_GLOO = Pattern(r"Timed out waiting \d{1,12}ms for (?:recv|send) operation")
_BARRIER = Pattern(r"Ranks? (?P<ranks>\d{1,6}(?:, \d{1,6}){0,63}) failed to pass monitoredBarrier")


class Collective(NamedTuple):
    """A collective of the default process group."""

    number: int
    operation: str

    def __str__(self) -> str:
        """Return `ALLREDUCE 41`."""
        return f"{self.operation} {self.number}"


class Timeout(NamedTuple):
    """A collective in which a rank timed out, and the line that says so."""

    collective: Collective | None  # None if the line does not name it
    text: str
    line: int


class Timeouts(Struct):
    """The ranks of one container that timed out, and the ranks that others name because they did not come."""

    waited: dict[int, Timeout] = field(default_factory=dict)  # the first timeout of each rank
    absent: dict[int, Timeout] = field(default_factory=dict)

    def read(self, text: str, *, line: int, ranks: tuple[int, ...]) -> None:
        """Record the timeout in this line; `ranks` are the global ranks of the container.

        Only collectives of the default group count: the ranks of other groups count from 0, and each group numbers its own
        collectives.
        """
        if not any(literal in text for literal in _LITERALS) or len(self.waited) >= MAX_RANKS:
            return
        quote = cut_text(text, MAX_QUOTE)
        if match := _BARRIER.search(text):
            self.absent |= {int(rank): Timeout(None, quote, line) for rank in match["ranks"].split(", ")}
            return
        match = _NCCL.search(text)
        if match is None and not _GLOO.search(text):
            return
        rank = int(match["rank"]) if match and match["rank"] else find_rank(text, ranks)
        is_default = match is None or _DEFAULT_GROUP.search(match["group"] or "") is not None
        if rank is not None and is_default:
            collective = Collective(int(match["number"]), match["operation"]) if match and match["number"] else None
            self.waited.setdefault(rank, Timeout(collective, quote, line))


def find_difference(collectives: Mapping[int, Collective]) -> tuple[list[int], str] | None:
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
