"""Search for literals in a raw block of log lines: one pass of an Aho-Corasick automaton finds the lines with any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

_BUCKETS = 16
"""Groups into which the search divides its literals: literal n belongs to group n modulo 16 (aho-corasick, packed/teddy)."""


class Relevance(IntEnum):
    """Whether a line is needed."""

    NONE = 0
    FIGURES = 1  # it may hold figures
    STRONG = 2  # it has a literal that needs no figure


LineRange = tuple[int, int]
"""Position of a line within its block: its start, and its line end."""
FoundLines = dict[LineRange, Relevance]
"""Lines of one block with a literal."""
Judge = Callable[[bytes, LineRange], Relevance]
"""A function that returns the relevance of a line in a block."""


class LiteralSearch(NamedTuple):
    """A search for literals. A line with a `strong` literal is relevant; another one needs more than its literal."""

    automaton: BytesAhoCorasick
    strong: frozenset[int]

    def add_lines(self, block: bytes, lines: FoundLines, judge: Judge, part: LineRange | None = None) -> bool:
        """Add the lines with a literal in this part of the block; return whether a relevant one is among them."""
        first, last = part or (0, None)
        matches = self.automaton.find_matches_as_indexes(block[first:last])
        if not matches:
            return False
        strong, end, line, relevance, adds = self.strong, -1, (0, 0), Relevance.NONE, False
        for number, _, stop in matches:
            place = first + stop - 1  # a literal may begin with the end of the previous line
            if place > end:
                end = find_line_end(block, place)
                line = (block.rfind(b"\n", 0, place) + 1, end)
                known = lines.get(line)
                if known is None and number not in strong:
                    known = lines[line] = judge(block, line)
                    adds = adds or known is not Relevance.NONE
                relevance = known or Relevance.NONE
            if relevance is not Relevance.STRONG and number in strong:
                relevance = lines[line] = Relevance.STRONG
                adds = True
        return adds


@cache
def build_search(literals: tuple[str, ...], weak: frozenset[str], *, is_dense: bool = False) -> LiteralSearch:
    """Return a search that all containers of a job share; it has no state. A dense one takes more memory and less time."""
    encoded = [literal.encode() for literal in literals]
    implementation = Implementation.DFA if is_dense else None
    automaton = BytesAhoCorasick(encoded, matchkind=MatchKind.LeftmostFirst, implementation=implementation)
    return LiteralSearch(automaton, frozenset(number for number, literal in enumerate(literals) if literal not in weak))


def spread_literals(literals: Iterable[str]) -> tuple[str, ...]:
    """Return the literals in an order that puts similar ones into the same bucket of the search, which halves its time."""
    alike = sorted(literals)
    rows = -(-len(alike) // _BUCKETS)
    return tuple(literal for first in range(rows) for literal in alike[first::rows])


def split_lines(block: bytes) -> Iterator[LineRange]:
    """Yield the positions of all lines of a block."""
    start = 0
    while start < len(block):
        end = find_line_end(block, start)
        yield start, end
        start = end + 1


def find_line_end(block: bytes, position: int) -> int:
    """Return the end of the line at this position, without its line break."""
    end = block.find(b"\n", position)
    return len(block) if end < 0 else end
