"""Prefilter for raw blocks of log lines: it drops lines that are irrelevant before an event is created for them.

One pass of an Aho-Corasick automaton finds all literals in a whole block. The remaining lines are enough for the view (master,
rounds, progress), and with `diagnosis` for the rules too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from kfjob.joblog.agents.agent_log import HEADINGS
from kfjob.joblog.diagnose.engine.matching import LINES_AFTER, find_literals
from kfjob.joblog.lines.prefixes import clean_line, find_message
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.progress import milestones
from kfjob.joblog.progress.exact_formats import KFJOB_TRAINER, progress_reader
from kfjob.joblog.progress.general.candidates import (
    FIRST_MARKERS,
    MAIN_MARKERS,
    MORE_MARKERS,
    RARE_MARKERS,
    read_layout,
)

_LINES_AFTER_HEADING = 40
"""Lines after a heading that are always kept: the fields of a block may have no prefix to search for."""

GLOG_WARNINGS = (" W0", " W1", "\nW0", "\nW1")
"""Every glog warning contains one of these: glog prints the month after the `W`, and a time may precede it."""

_STAMP = rb"\d{4}-\d\d-\d\dT[^ \n]{1,40} (?:std(?:out|err) [FP] )?"
_NUMBER_FIRST = rb"(?>(?:[ \t|\"]++|\xe2\x94[\x82\x83])*)\d[\d.]*+(?:[ \t|,(%\"]|$)"
_ROW_START = re.compile(rb"(?m)^(?:" + _STAMP + rb")?" + _NUMBER_FIRST)
"""A line that begins with a number, after the stamp of a log tool."""

_AGENT_MARKERS = ("elastic", "endezvous")
_FIRST_FIGURES = tuple(marker.encode() for marker in FIRST_MARKERS)
_MORE_MARKERS = (*MORE_MARKERS, *(f"\n{marker}" for marker in FIRST_MARKERS))
_GENERAL_MARKERS = frozenset((*MAIN_MARKERS, *_MORE_MARKERS, *RARE_MARKERS))
"""Every line that the view reads for its figures contains one of these, except the rows of tables."""
RARE_WHOLE = 1 << 15
"""Bytes at the beginning of a log in which kfjob always searches for the names of `RARE_MARKERS`."""

_MAX_PREFIX = 400
"""Characters in the pattern of the prefix of a table's rows."""


def find_markers(config: ObserveConfig) -> tuple[str, ...]:
    """Return literals of which every relevant line contains one; empty if the job's own pattern must be tried on every line.

    `AgentLog` also reads a plain block without its heading (lost to log rotation), which these markers do not find.
    """
    if config.trainer == KFJOB_TRAINER and config.progress_pattern is None:
        # kfjob's trainer needs a torch whose agent writes `api.py:552]`, as the trainer itself writes `train.py:18]`
        return (milestones.MARKER,) if config.rendezvous in {"c10d", "etcd-v2", "static"} else (milestones.MARKER, "endezvous")
    return spread_literals({*_AGENT_MARKERS, *MAIN_MARKERS}) if config.progress_pattern is None else ()


class Prefilter:
    """Selects the relevant lines of one container's log. It remembers what it found, so each container needs its own."""

    def __init__(
        self, config: ObserveConfig, *, diagnosis: bool = False, select_all: Callable[[], bool] = lambda: False
    ) -> None:
        """Select lines for the view; with `diagnosis` also every line that a rule can match; every line of some blocks."""
        markers = find_markers(config)
        self._needs_all = not markers  # the job's own pattern may match any line
        self._select_all = select_all
        reads_any = progress_reader(config.trainer, config.progress_pattern).general
        weak = _GENERAL_MARKERS if reads_any else frozenset()
        self._rows = _TableRows()
        self._figures = _FigureSearch(self._rows, markers) if reads_any else None
        rules = (*find_literals(), *GLOG_WARNINGS) if diagnosis else ()
        literals = (() if reads_any else markers, rules)
        self._searches = [build_search(group, weak) for group in literals if group]
        self._first_line_starts = tuple(literal[1:].encode() for literal in (*markers, *rules) if literal.startswith("\n"))
        self._headings = _Headings(diagnosis=diagnosis)

    def select(self, block: bytes) -> list[LineRange]:
        """Return the relevant lines of the next block; a block consists of whole lines."""
        if self._needs_all:
            return list(split_lines(block))
        lines = self._find_literals(block)
        rows = self._rows.find(block)
        if self._select_all():
            return list(split_lines(block))
        if not lines and not rows and not self._headings.remaining:
            return []  # as for most blocks
        matches = sorted({*(line for line, relevance in lines.items() if relevance), *rows})
        return self._headings.add_lines_after(block, matches, lines)

    def _find_literals(self, block: bytes) -> FoundLines:
        lines = FoundLines()
        if self._figures:
            self._figures.add_lines(block, lines)
        for search in self._searches:
            search.add_lines(block, lines, _judge_without_figures)
        if block.startswith(self._first_line_starts):
            lines[0, find_line_end(block, 0)] = Relevance.STRONG
        return lines


def _judge_without_figures(_: bytes, __: LineRange) -> Relevance:
    """Return the relevance of a line with a weak literal that the search for figures has not found."""
    return Relevance.NONE


class _FigureSearch:
    """Finds the lines with figures, and searches for more names once there is one."""

    def __init__(self, rows: _TableRows, markers: tuple[str, ...]) -> None:
        """Search for these markers, which include `MAIN_MARKERS`."""
        self._rows = rows
        weak = _GENERAL_MARKERS - {*_AGENT_MARKERS}
        self._main = build_search(markers, weak)
        self._main_and_more = build_search(spread_literals({*markers, *_MORE_MARKERS}), weak)
        self._rare = build_search(RARE_MARKERS, _GENERAL_MARKERS, is_dense=True)
        self._seen = 0  # bytes of the log so far
        self._has_figures = False
        self._has_rare = False  # only a rare name found a line with figures, so other lines may have such names too

    def add_lines(self, block: bytes, lines: FoundLines) -> None:
        """Add the lines of the next block that may hold figures; nearly every block needs one search."""
        knew_figures = self._has_figures
        self._seen += len(block)
        at_beginning = self._seen < RARE_WHOLE
        (self._main_and_more if knew_figures else self._main).add_lines(block, lines, self._judge)
        if self._has_figures:
            if block.startswith(_FIRST_FIGURES):
                lines[0, find_line_end(block, 0)] = Relevance.FIGURES
            if not knew_figures:
                self._main_and_more.add_lines(block, lines, self._judge)
        if self._has_rare or at_beginning or not knew_figures:
            self._has_rare = self._rare.add_lines(block, lines, self._judge) or self._has_rare

    def _judge(self, block: bytes, line: LineRange) -> Relevance:
        """Return whether the layout of the line may hold figures."""
        text = block[line[0] : line[1]]
        layout = read_layout(text)
        if not layout.matters:
            is_milestone = milestones.MARKER_BYTES in text and milestones.parse_milestone(text.decode(errors="replace"))
            return Relevance.FIGURES if is_milestone else Relevance.NONE
        self._has_figures = True
        if layout.is_header:
            self._rows.begin(text, line[1])
        return Relevance.FIGURES


class _TableRows:
    """Finds the rows below the first header of a table: they begin with a number, and have no literal."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[bytes] | None = None
        self._header_end = 0  # position after the header in the block that contains it

    def begin(self, header: bytes, end: int) -> None:
        """Remember the header of a table, which ends at this position of the block."""
        if self._pattern is None:
            self._pattern, self._header_end = _make_row_pattern(header), end

    def find(self, block: bytes) -> list[LineRange]:
        """Return the rows of the next block."""
        if self._pattern is None:
            return []
        first, self._header_end = self._header_end, 0
        return [(match.start(), find_line_end(block, match.start())) for match in self._pattern.finditer(block, first)]


class _Headings:
    """Adds the lines after a heading: the fields of its block may have no literal."""

    def __init__(self, *, diagnosis: bool) -> None:
        self._lines_after = {heading.encode(): _LINES_AFTER_HEADING for heading in HEADINGS}
        if diagnosis:
            self._lines_after |= {first.encode(): lines for first, lines in LINES_AFTER.items()}
        self.remaining = 0  # lines that the last heading still selects

    def add_lines_after(self, block: bytes, matches: list[LineRange], lines: FoundLines) -> list[LineRange]:
        """Return the matches with the lines after their headings, which have a strong literal."""
        headings = (line for line, relevance in lines.items() if relevance is Relevance.STRONG)
        if not self.remaining and not any(self._count(block, *line) for line in headings):
            return matches
        return list(self._select(block, frozenset(matches)))

    def _select(self, block: bytes, matches: frozenset[LineRange]) -> Iterator[LineRange]:
        for line in split_lines(block):
            if self.remaining or line in matches:
                yield line
            self.remaining = max(self.remaining - 1, self._count(block, *line) if line in matches else 0, 0)

    def _count(self, block: bytes, start: int, end: int) -> int:
        """Return how many lines the heading in this line selects; 0 without a heading."""
        return max((lines for heading, lines in self._lines_after.items() if block.find(heading, start, end) >= 0), default=0)


def prefilter_factory(
    config: ObserveConfig, *, diagnosis: bool = False, select_all: Callable[[], bool] = lambda: False
) -> Callable[[], Callable[[bytes], list[LineRange]]] | None:
    """Return a function that creates a filter for one container's log; None if every line must be read.

    While `select_all` returns true, the filter selects every line.
    """
    if not find_markers(config):
        return None
    return lambda: Prefilter(config, diagnosis=diagnosis, select_all=select_all).select


def _make_row_pattern(header: bytes) -> re.Pattern[bytes]:
    """Return the pattern of rows: they have the prefix of the header, with other digits, before their first number."""
    message = find_message(clean_line(header.decode(errors="replace"))[0]).text.encode(errors="replace")
    prefix = re.escape(header.removesuffix(message))
    if len(prefix) > _MAX_PREFIX or not header.endswith(message):
        return _ROW_START
    return re.compile(rb"(?m)^(?:" + _STAMP + rb"|" + re.sub(rb"\d", rb"\\d", prefix) + rb")?" + _NUMBER_FIRST)


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

    def add_lines(self, block: bytes, lines: FoundLines, judge: Judge) -> bool:
        """Add the lines of the block with a literal; return whether a relevant one is among them."""
        matches = self.automaton.find_matches_as_indexes(block)
        if not matches:
            return False
        strong, end, line, relevance, adds = self.strong, -1, (0, 0), Relevance.NONE, False
        for number, _, stop in matches:
            place = stop - 1  # a literal may begin with the end of the previous line
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
