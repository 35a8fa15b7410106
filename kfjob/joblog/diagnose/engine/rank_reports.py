"""What lines report about ranks: who printed them, collectives that timed out, the world size, and warnings of NCCL.

Timeouts show which ranks took another path than the others, and which did not report. The world size is that of the banners of
torch, accelerate, Lightning, DeepSpeed and NCCL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from kfjob.base.patterns import Pattern
from kfjob.joblog.diagnose.engine.incidents import Incident
from kfjob.joblog.diagnose.rule import IncidentKind
from kfjob.joblog.lines.prefixes import split_prefix
from kfjob.joblog.master.evidence import describe_ranks
from kfjob.redaction import cut_text

MAX_RANKS = 64
"""Ranks of a pod with a timeout to remember."""
MAX_TIMEOUT_QUOTE = 300
"""Characters of a quoted line about a timeout."""

_TIMEOUT_LITERALS = ("Watchdog caught collective operation timeout", "Timed out waiting ", "failed to pass monitoredBarrier")
_WATCHDOG = Pattern(
    r"(?:\[(?P<group>(?:PG ID \d+ PG GUID \S{0,200} |PG \d+ )?)Rank (?P<rank>\d{1,6})\] )?"
    r"Watchdog caught collective operation timeout(?:: WorkNCCL\(SeqNum=(?P<number>\d{1,18}), OpType=(?P<operation>\w{1,40}))?"
)
_DEFAULT_GROUP = Pattern(r"^(?:PG ID \d+ PG GUID 0\(default_pg\) |PG 0 )?$")
_GLOO_TIMEOUT = Pattern(r"Timed out waiting \d{1,12}ms for (?:recv|send) operation")
_BARRIER_TIMEOUT = Pattern(r"Ranks? (?P<ranks>\d{1,6}(?:, \d{1,6}){0,63}) failed to pass monitoredBarrier")

WORLD_SIZE_LITERALS = ("orld_size", "orld size", "um_processes", "um processes", "MEMBER: ", "process group with ", "nranks ")
"""Literals of which every line with a world size contains one."""

_WORLD_SIZE = Pattern(
    r"\b[Ww]orld[_ ]size['\"]?\s{0,2}[:=]\s{0,2}(?P<size>\d{1,6})\b|\b[Nn]um[_ ]processes\s{0,2}[:=]\s{0,2}(?P<size2>\d{1,6})\b"
    r"|MEMBER: (?P<member>\d{1,6})/(?P<size3>\d{1,6})\b|process group with (?P<size4>\d{1,6}) (?:ranks?|process)"
    r"|\brank (?P<rank>\d{1,6}) nranks (?P<size5>\d{1,6})\b"
)
_SETTINGS = ("Namespace(", "rguments", "onfig", "default")
"""Parts of lines that print settings: their world size may be a default that nothing uses."""

MAX_WARNING_DISTANCE = 200
"""Lines between a warning of NCCL and the exception that it explains."""
MAX_WARNINGS = 16
"""Newest warnings of NCCL to keep of a pod."""
MAX_QUOTED_WARNINGS = 2
"""Warnings to quote with an exception."""
_NCCL_WARNING = Pattern(r"\[(?P<gpu>\d{1,3})\] (?:\S+ )?NCCL WARN (?P<what>\S.*)")


def find_rank(text: str, ranks: tuple[int, ...]) -> int | None:
    """Return the global rank that printed the line: from its prefix, else the pod's only rank."""
    prefix, _ = split_prefix(text)
    if prefix.rank is None:
        return ranks[0] if len(ranks) == 1 else None
    if not prefix.is_local_rank:
        return prefix.rank
    return ranks[prefix.rank] if prefix.rank < len(ranks) else None


def find_gpu(rank: int, ranks: tuple[int, ...]) -> int:
    """Return the local number of a rank, which is that of its GPU; the rank itself if the pod's ranks are unknown."""
    return ranks.index(rank) if rank in ranks else rank


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

    by_rank: dict[int, Timeout] = field(default_factory=dict)  # the first timeout of each rank
    absent: dict[int, Timeout] = field(default_factory=dict)

    def read(self, text: str, *, line: int, ranks: tuple[int, ...]) -> None:
        """Record the timeout in this line; `ranks` are the global ranks of the container.

        Only collectives of the default group count: the ranks of other groups count from 0, and each group numbers its own
        collectives.
        """
        if not any(literal in text for literal in _TIMEOUT_LITERALS) or len(self.by_rank) >= MAX_RANKS:
            return
        quote = cut_text(text, MAX_TIMEOUT_QUOTE)
        if match := _BARRIER_TIMEOUT.search(text):
            self.absent |= {int(rank): Timeout(None, quote, line) for rank in match["ranks"].split(", ")}
            return
        match = _WATCHDOG.search(text)
        if match is None and not _GLOO_TIMEOUT.search(text):
            return
        rank = int(match["rank"]) if match and match["rank"] else find_rank(text, ranks)
        is_default = match is None or _DEFAULT_GROUP.search(match["group"] or "") is not None
        if rank is not None and is_default:
            collective = Collective(int(match["number"]), match["operation"]) if match and match["number"] else None
            self.by_rank.setdefault(rank, Timeout(collective, quote, line))


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


class WorldSize(Struct, frozen=True):
    """The largest world size that a container has printed."""

    size: int = 0  # 0: unknown
    has_rank0: bool = False  # a process of the container is rank 0 of that world
    evidence: str = ""


def read_world_size(known: WorldSize, text: str) -> WorldSize:
    """Return the largest world size so far; a smaller one is that of a subgroup."""
    if any(word in text for word in _SETTINGS) or not (match := _WORLD_SIZE.search(text)):
        return known
    values = match.groupdict()
    size = next(int(value) for name, value in values.items() if name.startswith("size") and value)
    is_first = values["rank"] == "0" or values["member"] == "1"
    if size < known.size:
        return known
    return WorldSize(size, is_first or (size == known.size and known.has_rank0), known.evidence if size == known.size else text)


class NcclWarning(Struct, frozen=True):
    """A warning of NCCL, which may say why an exception follows."""

    order: int
    line: int
    round_start: int
    gpu: str  # local number of the process's GPU
    what: str
    printed: str


def read_nccl_warning(incident: Incident) -> NcclWarning | None:
    """Return the incident as a warning of NCCL; None for another one."""
    text = incident.lines[0]
    if incident.kind is IncidentKind.EXCEPTION or "NCCL WARN" not in text or not (match := _NCCL_WARNING.search(text)):
        return None
    mark = incident.mark
    return NcclWarning(
        mark.order, mark.line, mark.round_start, match["gpu"], match["what"].strip(), incident.printed[0].strip()
    )


def find_nccl_warnings(warnings: Sequence[NcclWarning], incident: Incident, *, gpu: str) -> Sequence[NcclWarning]:
    """Return the newest warnings before an exception of NCCL; those of the same GPU (`gpu`, "" if unknown) if it has any.

    The message of the exception only repeats that NCCL failed, and the warning says where and why.
    """
    if incident.kind is not IncidentKind.EXCEPTION or "nccl" not in incident.text.lower():
        return ()
    mark = incident.mark
    near = [
        item for item in warnings if item.round_start == mark.round_start and 0 <= mark.line - item.line <= MAX_WARNING_DISTANCE
    ]
    return ([item for item in near if item.gpu == gpu] or near)[-MAX_QUOTED_WARNINGS:]
