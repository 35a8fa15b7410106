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
from kfjob.observe.diagnose import coarse, tracebacks
from kfjob.observe.progress import KFJOB, reader

_AFTER_HEADING = 40
"""Lines after a heading that are kept whatever they hold: what follows it may have no prefix to look for."""

Span = tuple[int, int]
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


class Sieve:
    """Keeps, out of one container's lines, those that can matter. One for each container: it knows where a heading was."""

    def __init__(self, config: ObserveConfig, *, diagnosis: bool = False) -> None:
        """Look for what this job's lines may hold; with `diagnosis` also for whatever a rule about lines may know."""
        wanted = markers(config)
        self._all = not wanted  # the caller's pattern may know any line
        if diagnosis:
            wanted = tuple(dict.fromkeys((*wanted, *coarse.LITERALS, *coarse.GLOG_WARNINGS)))
        self.literals = tuple(literal.encode() for literal in wanted)
        self._search = _automaton(self.literals)
        self._at_once = tuple(literal[1:] for literal in self.literals if literal.startswith(b"\n"))  # in a block's first line
        self._followed = {heading.encode(): _AFTER_HEADING for heading in HEADINGS}
        if diagnosis:
            self._followed[tracebacks.HEADING.encode()] = tracebacks.PATIENCE
        self._after = 0  # lines that are still to be kept

    def sift(self, block: bytes) -> list[Span]:
        """The lines that can matter of the next `block` of whole lines."""
        if self._all:
            return list(_lines(block))
        touched = self._touched(block)
        if not self._after and not any(self._following(block, *span) for span in touched):
            return touched
        return list(self._with_what_follows(block, set(touched)))

    def _touched(self, block: bytes) -> list[Span]:
        """The lines with a literal."""
        found: list[Span] = []
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

    def _with_what_follows(self, block: bytes, touched: set[Span]) -> Iterator[Span]:
        for span in _lines(block):
            if self._after or span in touched:
                yield span
            self._after = max(self._after - 1, self._following(block, *span) if span in touched else 0, 0)


def sieve_for(config: ObserveConfig, *, diagnosis: bool = False) -> Callable[[], Callable[[bytes], list[Span]]] | None:
    """What a reader of logs makes a sieve with, for each container; None where every line has to be read."""
    return (lambda: Sieve(config, diagnosis=diagnosis).sift) if markers(config) else None


@cache
def _automaton(literals: tuple[bytes, ...]) -> BytesAhoCorasick:
    """One for all containers of a job: it has no state."""
    return BytesAhoCorasick(literals, matchkind=MatchKind.LeftmostFirst)


def _lines(block: bytes) -> Iterator[Span]:
    start = 0
    while start < len(block):
        end = _end(block, start)
        yield start, end
        start = end + 1


def _end(block: bytes, at: int) -> int:
    """Where the line ends that `at` is in."""
    end = block.find(b"\n", at)
    return len(block) if end < 0 else end
