"""Prefilter for raw blocks of log lines: it drops lines that are irrelevant before an event is created for them.

One pass of an Aho-Corasick automaton finds all literals in a whole block. The remaining lines are enough for the view (master,
rounds, progress), and with `diagnosis` for the rules too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from kfjob.observe import milestones
from kfjob.observe.agent_log import HEADINGS
from kfjob.observe.diagnose.literals import LINES_AFTER, find_literals
from kfjob.observe.figures.messages import find_message
from kfjob.observe.general import skeletons
from kfjob.observe.general.markers import FIRST_MARKERS, FOREIGN_MARKERS, MAIN_MARKERS, MORE_MARKERS, RARE_MARKERS
from kfjob.observe.lines import clean_line
from kfjob.observe.progress import KFJOB_TRAINER, progress_reader
from kfjob.spec.observe_config import ObserveConfig

_LINES_AFTER_HEADING = 40
"""Lines after a heading that are always kept: the fields of a block may have no prefix to search for."""

GLOG_WARNINGS = (" W0", " W1", "\nW0", "\nW1")
"""Every glog warning contains one of these: glog prints the month after the `W`, and a time may precede it."""

_STAMP = rb"\d{4}-\d\d-\d\dT[^ \n]{1,40} (?:std(?:out|err) [FP] )?"
_NUMBER_FIRST = rb"(?:[ \t|]|\xe2\x94[\x82\x83])*+\d[\d.]*+[ \t|,(%]"
_ROW_START = re.compile(rb"(?m)^(?:" + _STAMP + rb")?" + _NUMBER_FIRST)
"""A line that begins with a number, after the stamp of a log tool."""

_SAMPLE = 1024
"""Bytes at the end of each later block in which other characters than ASCII are searched."""
_BUCKETS = 16
"""Groups into which the search divides its literals: literal n belongs to group n modulo 16 (aho-corasick, packed/teddy)."""


def _spread(literals: Iterable[str]) -> tuple[str, ...]:
    """Return the literals in an order that puts similar ones into the same bucket of the search, which halves its time."""
    alike = sorted(literals)
    rows = -(-len(alike) // _BUCKETS)
    return tuple(literal for first in range(rows) for literal in alike[first::rows])


_AGENT_MARKERS = ("elastic", "endezvous")
_MORE_MARKERS = (*MORE_MARKERS, *(f"\n{marker}" for marker in FIRST_MARKERS))
_GENERAL_MARKERS = frozenset((*MAIN_MARKERS, *_MORE_MARKERS, *FOREIGN_MARKERS, *RARE_MARKERS))
"""Every line that the view reads for its figures contains one of these, except the rows of tables."""
RARE_SAMPLE = 1024
"""Bytes of a sample in which kfjob searches for the names of `RARE_MARKERS`."""
RARE_WHOLE = 1 << 15
"""Bytes at the beginning of a log that kfjob searches whole for these names, if they come in blocks that are not longer."""
RARE_INTERVAL = 1 << 19
"""Bytes of a log from one sample to the next; the first block with a sample has four."""
_MAIN_MARKERS = _spread({*_AGENT_MARKERS, *MAIN_MARKERS})
_MAIN_AND_MORE = _spread({*_MAIN_MARKERS, *_MORE_MARKERS})

_MAX_PREFIX = 400
"""Characters in the pattern of the prefix of a table's rows."""
_IRRELEVANT, _FIGURES, _STRONG = range(3)
"""Relevance of a line: one with figures may hold progress, one with a strong literal is relevant without them."""
LineRange = tuple[int, int]
"""Position of a line within its block: its start, and its line end."""
_Lines = dict[LineRange, int]
"""Lines of one block with their relevance."""


def find_markers(config: ObserveConfig) -> tuple[str, ...]:
    """Return literals of which every relevant line contains one; empty if the job's own pattern must be tried on every line.

    `AgentLog` also reads a plain block without its heading (lost to log rotation), which these markers do not find.
    """
    if config.trainer == KFJOB_TRAINER and config.progress_pattern is None:
        # kfjob's trainer needs a torch whose agent writes `api.py:552]`, as the trainer itself writes `train.py:18]`
        return (milestones.MARKER,) if config.rendezvous in {"c10d", "etcd-v2", "static"} else (milestones.MARKER, "endezvous")
    formats = progress_reader(config.trainer, config.progress_pattern)
    if formats.general:
        return _MAIN_MARKERS
    return (*_AGENT_MARKERS, *formats.markers) if formats.markers else ()


class Prefilter:
    """Selects the relevant lines of one container's log. It remembers headings, so each container needs its own."""

    def __init__(
        self, config: ObserveConfig, *, diagnosis: bool = False, select_all: Callable[[], bool] = lambda: False
    ) -> None:
        """Select lines for the view; with `diagnosis` also every line that a rule can match; every line of some blocks."""
        markers = find_markers(config)
        self._needs_all = not markers  # the job's own pattern may match any line
        self._select_all = select_all
        weak = _find_weak_literals(config)
        rules = (*find_literals(), *GLOG_WARNINGS) if diagnosis else ()
        self._main = _build_search(markers, weak)
        self._rules = _build_search(rules, frozenset()) if diagnosis else None
        self.literals = tuple(literal.encode() for literal in (*markers, *rules))
        self._reads_any = progress_reader(config.trainer, config.progress_pattern).general
        self._main_and_more = _build_search(_MAIN_AND_MORE, weak) if self._reads_any else self._main
        self._foreign = _build_search(_spread(FOREIGN_MARKERS), weak)
        self._rare = _build_search(RARE_MARKERS, weak, is_dense=True)
        self._seen = 0  # bytes of the log so far
        self._next_sample = RARE_WHOLE  # bytes of the log at which the next sample is searched for rare names
        self._has_rare = False  # only a rare name found a line with figures, so other lines may have such names too
        self._is_foreign = False  # a block had other characters than ASCII at its beginning or end
        self._has_progress = False  # a line with the layout of progress was selected, so lines below it matter too
        self._first_line_starts = tuple(literal[1:] for literal in self.literals if literal.startswith(b"\n"))
        self._first_figures = tuple(marker.encode() for marker in FIRST_MARKERS) if self._reads_any else ()
        self._lines_after = {heading.encode(): _LINES_AFTER_HEADING for heading in HEADINGS}
        if diagnosis:
            self._lines_after |= {first.encode(): lines for first, lines in LINES_AFTER.items()}
        self._remaining = 0  # lines that the last heading still selects
        self._rows: re.Pattern[bytes] | None = None  # the header of a table was selected, so rows of numbers matter
        self._header_end = 0  # position after that header in the block that contains it

    def select(self, block: bytes) -> list[LineRange]:
        """Return the relevant lines of the next block; a block consists of whole lines."""
        if self._needs_all:
            return list(_split(block))
        lines = self._find_literals(block)
        if self._select_all():
            self._header_end = 0
            return list(_split(block))
        if not lines and self._rows is None and not self._remaining:
            return []  # as for most blocks
        matches = sorted(line for line, relevance in lines.items() if relevance)
        if self._rows is not None:
            matches = self._add_rows(block, matches)
        headings = (line for line, relevance in lines.items() if relevance == _STRONG)
        if not self._remaining and not any(self._count_lines_after(block, *line) for line in headings):
            return matches
        return list(self._add_lines_after_headings(block, frozenset(matches)))

    def _find_literals(self, block: bytes) -> _Lines:
        """Return the lines with a literal; nearly every block needs one search."""
        lines = _Lines()
        if block.startswith(self._first_line_starts):
            lines[0, _find_line_end(block, 0)] = _STRONG
        knew_progress = self._has_progress
        self._search(block, self._main_and_more if knew_progress else self._main, lines)
        if self._rules is not None:
            self._search(block, self._rules, lines)
        if not self._reads_any:
            return lines
        if self._is_foreign or not (block if self._seen < RARE_WHOLE else block[-_SAMPLE:]).isascii():
            self._is_foreign = True
            self._search(block, self._foreign, lines)
        if self._has_progress:
            if block.startswith(self._first_figures):
                lines[0, _find_line_end(block, 0)] = _FIGURES
            if not knew_progress:
                self._search(block, self._main_and_more, lines)
        self._seen += len(block)
        if self._has_rare or self._seen >= self._next_sample or self._seen < RARE_WHOLE or len(block) <= RARE_SAMPLE:
            self._find_rare(block, lines)
        return lines

    def _find_rare(self, block: bytes, lines: _Lines) -> None:
        """Add the lines with figures that have rare names, in whole blocks once such a line is not among the others."""
        if not self._has_rare:
            samples = self._choose_samples(len(block))
            self._has_rare = any(self._search(block, self._rare, lines, start, end) for start, end in samples)
        if self._has_rare:
            self._search(block, self._rare, lines)

    def _choose_samples(self, size: int) -> Sequence[LineRange]:
        """Return the parts of a block of this size in which rare names are searched."""
        if self._seen < RARE_WHOLE or size <= RARE_SAMPLE:
            return ((0, size),)
        last = size - RARE_SAMPLE
        starts = (0, last // 3, last * 2 // 3, last) if self._next_sample == RARE_WHOLE else (last,)
        self._next_sample = self._seen + RARE_INTERVAL
        return [(start, start + RARE_SAMPLE) for start in starts]

    def _search(self, block: bytes, search: _Search, lines: _Lines, first: int = 0, last: int | None = None) -> bool:
        """Add the lines with a literal of this search, between two positions of the block; return whether one is relevant."""
        matches = search.automaton.find_matches_as_indexes(block[first:last])
        if not matches:
            return False
        strong, end, line, relevance, adds = search.strong, -1, (0, 0), _IRRELEVANT, False
        for number, _, stop in matches:
            place = first + stop - 1  # a literal may begin with the end of the previous line
            if place > end:
                end = _find_line_end(block, place)
                line = (block.rfind(b"\n", 0, place) + 1, end)
                known = lines.get(line)
                if known is None and number not in strong:
                    known = lines[line] = self._read_figures(block, line)
                    adds = adds or bool(known)
                relevance = known or _IRRELEVANT
            if relevance != _STRONG and number in strong:
                relevance = lines[line] = _STRONG
                adds = True
        return adds

    def _read_figures(self, block: bytes, line: LineRange) -> int:
        """Return whether the layout of the line may hold progress; remember the first header of a table."""
        text = block[line[0] : line[1]]
        layout = skeletons.read_layout(text)
        if not layout.matters:
            is_milestone = milestones.MARKER_BYTES in text and milestones.parse_milestone(text.decode(errors="replace"))
            return _FIGURES if is_milestone else _IRRELEVANT
        self._has_progress = True
        if layout.is_header and self._rows is None:
            self._rows, self._header_end = _make_row_pattern(text), line[1]
        return _FIGURES

    def _add_rows(self, block: bytes, matches: list[LineRange]) -> list[LineRange]:
        """Add the rows of the table, which have no literal: they begin with a number."""
        first, self._header_end = self._header_end, 0
        starts = (match.start() for match in self._rows.finditer(block, first)) if self._rows else ()
        return sorted({*matches, *((start, _find_line_end(block, start)) for start in starts)})

    def _count_lines_after(self, block: bytes, start: int, end: int) -> int:
        """Return how many lines the heading in this line selects; 0 without a heading."""
        return max((lines for heading, lines in self._lines_after.items() if block.find(heading, start, end) >= 0), default=0)

    def _add_lines_after_headings(self, block: bytes, matches: frozenset[LineRange]) -> Iterator[LineRange]:
        for line in _split(block):
            if self._remaining or line in matches:
                yield line
            self._remaining = max(self._remaining - 1, self._count_lines_after(block, *line) if line in matches else 0, 0)


def prefilter_factory(
    config: ObserveConfig, *, diagnosis: bool = False, select_all: Callable[[], bool] = lambda: False
) -> Callable[[], Callable[[bytes], list[LineRange]]] | None:
    """Return a function that creates a filter for one container's log; None if every line must be read.

    While `select_all` returns true, the filter selects every line.
    """
    if not find_markers(config):
        return None
    return lambda: Prefilter(config, diagnosis=diagnosis, select_all=select_all).select


class _Search(NamedTuple):
    """A search for literals. A line with a `strong` literal is relevant; other lines need a figure too."""

    automaton: BytesAhoCorasick
    strong: frozenset[int]


@cache
def _build_search(literals: tuple[str, ...], weak: frozenset[str], *, is_dense: bool = False) -> _Search:
    """Return a search that all containers of a job share; it has no state. A dense one takes more memory and less time."""
    encoded = [literal.encode() for literal in literals]
    implementation = Implementation.DFA if is_dense else None
    automaton = BytesAhoCorasick(encoded, matchkind=MatchKind.LeftmostFirst, implementation=implementation)
    return _Search(automaton, frozenset(number for number, literal in enumerate(literals) if literal not in weak))


def _find_weak_literals(config: ObserveConfig) -> frozenset[str]:
    """Return the literals of lines that need a figure too."""
    return _GENERAL_MARKERS if progress_reader(config.trainer, config.progress_pattern).general else frozenset()


def _make_row_pattern(header: bytes) -> re.Pattern[bytes]:
    """Return the pattern of rows: they have the prefix of the header, with other digits, before their first number."""
    message = find_message(clean_line(header.decode(errors="replace"))[0]).text.encode(errors="replace")
    prefix = re.escape(header.removesuffix(message))
    if len(prefix) > _MAX_PREFIX or not header.endswith(message):
        return _ROW_START
    return re.compile(rb"(?m)^(?:" + _STAMP + rb"|" + re.sub(rb"\d", rb"\\d", prefix) + rb")?" + _NUMBER_FIRST)


def _split(block: bytes) -> Iterator[LineRange]:
    start = 0
    while start < len(block):
        end = _find_line_end(block, start)
        yield start, end
        start = end + 1


def _find_line_end(block: bytes, position: int) -> int:
    end = block.find(b"\n", position)
    return len(block) if end < 0 else end
