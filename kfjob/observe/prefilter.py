"""Which lines can matter at all: asked of raw blocks of lines, before an event is made of any of them.

A follower that only feeds the view (master, rounds, progress), and with `diagnosis` the symptoms, may drop every other line.
All literals are looked for in one pass over a whole block, by an Aho-Corasick automaton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from kfjob.observe import milestones
from kfjob.observe.agent_log import HEADINGS
from kfjob.observe.config import ObserveConfig
from kfjob.observe.diagnose import tracebacks
from kfjob.observe.progress import KFJOB, reader

_AFTER_HEADING = 40
"""Lines after a heading that are kept whatever they hold: what follows it may have no prefix to look for."""

RULE_LITERALS = (
    "rror",
    "arn",
    "WARN",
    "xception",
    "ailed",
    "FAILED",
    "annot",
    "c10d]",
    "GroupNCCL",
    "NCCL op",
    "NCCL comm",
    "ignal",
    "endezvous",
    "etcd",
    "illed",
    "not found",
    "Not Found",
    "enied",
    "No such",
    "No module",
    "mismatch",
    "Xid",
    "ffer",
    "Outcome ",
    "libfabric",
    "OFI",
    "unrecognized",
    "raceback",
    "gated",
    "time      :",
    "[W",
    "]:W",
    "OMP_",
    "destroy_process_group",
    "No space",
    "fallen",
    "too old",
)
"""One of these is in every line that a log rule can know, and in every warning that does not begin with glog's W."""

GLOG_WARNINGS = (" W0", " W1", "\nW0", "\nW1")
"""The same for warnings that do, where the line may have a time before it: after the W glog writes the month."""

LineRange = tuple[int, int]
"""Where a line begins in its block, and where its line end is."""


def markers(config: ObserveConfig) -> tuple[str, ...]:
    """Literals of which one is in every line that can matter; empty when the caller's pattern has to be tried on every line.

    A plain block whose heading was rotated away is found by `AgentLog`, but not through these.
    """
    if config.trainer == KFJOB and config.progress_pattern is None:
        # our trainer needs a torch whose agent writes `api.py:552]`, as the trainer itself writes `train.py:18]`
        return (milestones.MARKER,) if config.rendezvous in {"c10d", "etcd-v2", "static"} else (milestones.MARKER, "endezvous")
    wanted = reader(config.trainer, config.progress_pattern).markers
    return tuple(dict.fromkeys(("elastic", "endezvous", *wanted))) if wanted else ()


class Prefilter:
    """Keeps, out of one container's lines, those that can matter. One for each container: it knows where a heading was."""

    def __init__(self, config: ObserveConfig, *, diagnosis: bool = False) -> None:
        """Look for what this job's lines may hold; with `diagnosis` also for whatever a rule about lines may know."""
        wanted = markers(config)
        self._all = not wanted  # the caller's pattern may know any line
        if diagnosis:
            wanted = tuple(dict.fromkeys((*wanted, *RULE_LITERALS, *GLOG_WARNINGS)))
        self.literals = tuple(literal.encode() for literal in wanted)
        self._search = _automaton(self.literals)
        self._at_once = tuple(literal[1:] for literal in self.literals if literal.startswith(b"\n"))  # in a block's first line
        self._followed = {heading.encode(): _AFTER_HEADING for heading in HEADINGS}
        if diagnosis:
            self._followed[tracebacks.HEADING.encode()] = tracebacks.PATIENCE
        self._after = 0  # lines that are still to be kept

    def select(self, block: bytes) -> list[LineRange]:
        """The lines that can matter of the next `block` of whole lines."""
        if self._all:
            return list(_lines(block))
        touched = self._touched(block)
        if not self._after and not any(self._following(block, *span) for span in touched):
            return touched
        return list(self._with_what_follows(block, set(touched)))

    def _touched(self, block: bytes) -> list[LineRange]:
        """The lines with a literal."""
        found: list[LineRange] = []
        if block.startswith(self._at_once):
            found.append((0, _end(block, 0)))
        for _, _, stop in self._search.find_matches_as_indexes(block):
            last = stop - 1  # a literal may begin with the end of the line before
            if not found or last > found[-1][1]:
                found.append((block.rfind(b"\n", 0, last) + 1, _end(block, last)))
        return found

    def _following(self, block: bytes, start: int, end: int) -> int:
        """How many lines after this one are kept with it."""
        return max((lines for heading, lines in self._followed.items() if block.find(heading, start, end) >= 0), default=0)

    def _with_what_follows(self, block: bytes, touched: set[LineRange]) -> Iterator[LineRange]:
        for span in _lines(block):
            if self._after or span in touched:
                yield span
            self._after = max(self._after - 1, self._following(block, *span) if span in touched else 0, 0)


def prefilter_factory(
    config: ObserveConfig, *, diagnosis: bool = False
) -> Callable[[], Callable[[bytes], list[LineRange]]] | None:
    """What a reader of logs makes a sieve with, for each container; None where every line has to be read."""
    return (lambda: Prefilter(config, diagnosis=diagnosis).select) if markers(config) else None


@cache
def _automaton(literals: tuple[bytes, ...]) -> BytesAhoCorasick:
    """One for all containers of a job: it has no state."""
    return BytesAhoCorasick(literals, matchkind=MatchKind.LeftmostFirst)


def _lines(block: bytes) -> Iterator[LineRange]:
    start = 0
    while start < len(block):
        end = _end(block, start)
        yield start, end
        start = end + 1


def _end(block: bytes, at: int) -> int:
    """Where the line ends that `at` is in."""
    end = block.find(b"\n", at)
    return len(block) if end < 0 else end


def is_suspicious(line: str) -> bool:
    """Return whether any rule can match the line. Nearly all lines end here: the loop is half the cost of `any`."""
    if line[:1] == "W":
        return True
    for literal in RULE_LITERALS:  # noqa: SIM110 - see above
        if literal in line:
            return True
    return False
