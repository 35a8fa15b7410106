"""Prefilter for raw blocks of log lines: it drops lines that are irrelevant before an event is created for them.

One pass of an Aho-Corasick automaton finds all literals in a whole block. The remaining lines are enough for the view (master,
rounds, progress), and with `diagnosis` for the rules too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from kfjob.observe import milestones
from kfjob.observe.agent_log import HEADINGS
from kfjob.observe.diagnose.literals import LINES_AFTER, find_literals
from kfjob.observe.general import skeletons, tables
from kfjob.observe.general.markers import FIRST_MARKERS, FOREIGN_MARKERS, MAIN_MARKERS, MORE_MARKERS, RARE_MARKERS
from kfjob.observe.general.messages import find_message
from kfjob.observe.lines import clean_line
from kfjob.observe.numbers import mask_digits
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

_SAMPLE = 2048
"""Bytes at the beginning and the end of a block in which other characters than ASCII are searched."""
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
RARE_SAMPLE = 2048
"""Bytes at the beginning of each later block in which kfjob searches for the names of `RARE_MARKERS`."""
_MAIN_MARKERS = _spread({*_AGENT_MARKERS, *MAIN_MARKERS})

_MAX_PREFIX = 400
"""Characters in the pattern of the prefix of a table's rows."""
LineRange = tuple[int, int]
"""Position of a line within its block: its start, and its line end."""


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
        groups = [markers, (*find_literals(), *GLOG_WARNINGS)] if diagnosis else [markers]
        self._searches = tuple(_build_search(literals, weak) for literals in groups)
        self.literals = tuple(literal.encode() for literals in groups for literal in literals)
        self._reads_any = progress_reader(config.trainer, config.progress_pattern).general
        self._more = _build_search(_spread(_MORE_MARKERS), weak)
        self._foreign = _build_search(_spread(FOREIGN_MARKERS), weak)
        self._rare = _build_search(RARE_MARKERS, weak)
        self._is_first = True  # no block was read
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

    def select(self, block: bytes) -> list[LineRange]:
        """Return the relevant lines of the next block; a block consists of whole lines."""
        if self._needs_all:
            return list(_split(block))
        selected = self._select_relevant(block)
        return list(_split(block)) if self._select_all() else selected

    def _select_relevant(self, block: bytes) -> list[LineRange]:
        matches = self._find_literals(block)
        if self._reads_any:
            matches = self._add_rows(block, matches)
        if not self._remaining and not (matches and any(heading in block for heading in self._lines_after)):
            return matches
        return list(self._add_lines_after_headings(block, frozenset(matches)))

    def _find_literals(self, block: bytes) -> list[LineRange]:
        """Return the lines with a strong literal, and those with another literal and a layout that may hold progress."""
        selected: set[LineRange] = set()
        if block.startswith(self._first_line_starts):
            selected.add((0, _find_line_end(block, 0)))
        for search in self._searches:
            selected |= self._search(block, search)
        if self._reads_any:
            selected |= self._find_figures(block) | self._find_rare(block, selected)
        return sorted(selected)

    def _find_figures(self, block: bytes) -> set[LineRange]:
        """Return the lines that may hold progress in another language, or next to a line that does."""
        self._is_foreign = self._is_foreign or not (block[:_SAMPLE].isascii() and block[-_SAMPLE:].isascii())
        selected = self._search(block, self._foreign) if self._is_foreign else set()
        if not self._has_progress:
            return selected
        if block.startswith(self._first_figures):
            selected.add((0, _find_line_end(block, 0)))
        return selected | self._search(block, self._more)

    def _find_rare(self, block: bytes, others: set[LineRange]) -> set[LineRange]:
        """Return the lines with figures that have rare names, in whole blocks once such a line is not among the others."""
        is_whole, self._is_first = self._is_first or len(block) <= RARE_SAMPLE, False
        if not self._has_rare:
            head = block if is_whole else block[: _find_line_end(block, RARE_SAMPLE)]
            selected = self._search(head, self._rare)
            self._has_rare = not selected <= others
            if is_whole or not self._has_rare:
                return selected
        return self._search(block, self._rare)

    def _search(self, block: bytes, search: _Search) -> set[LineRange]:
        """Return the relevant lines with a literal of this search."""
        lines: dict[LineRange, bool] = {}  # whether a literal is strong
        start, end = 0, -1
        for number, _, stop in search.automaton.find_matches_as_indexes(block):
            last = stop - 1  # a literal may begin with the end of the previous line
            if last > end:
                start, end = block.rfind(b"\n", 0, last) + 1, _find_line_end(block, last)
                lines[start, end] = number in search.strong or lines.get((start, end), False)
            elif number in search.strong:
                lines[start, end] = True
        figures = {line for line, is_strong in lines.items() if not is_strong and _may_hold_progress(block, *line)}
        self._has_progress = self._has_progress or bool(figures)
        return figures | {line for line, is_strong in lines.items() if is_strong}

    def _add_rows(self, block: bytes, matches: list[LineRange]) -> list[LineRange]:
        """Add the rows of a table, which have no literal: they begin with a number."""
        first = 0
        if self._rows is None:
            header = next((line for line in matches if _is_table_header(block[line[0] : line[1]])), None)
            if header is None:
                return matches
            self._rows, first = _make_row_pattern(block[header[0] : header[1]]), header[1]
        starts = (match.start() for match in self._rows.finditer(block, first))
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


def _build_search(literals: tuple[str, ...], weak: frozenset[str]) -> _Search:
    strong = frozenset(number for number, literal in enumerate(literals) if literal not in weak)
    return _Search(_build_automaton(tuple(literal.encode() for literal in literals)), strong)


def _may_hold_progress(block: bytes, start: int, end: int) -> bool:
    """Return whether the layout of the line may hold progress."""
    if end - start > skeletons.MAX_LENGTH:
        return True
    line = block[start:end]
    return skeletons.may_hold_progress(line) or milestones.parse_milestone(line.decode(errors="replace")) is not None


def _find_weak_literals(config: ObserveConfig) -> frozenset[str]:
    """Return the literals of lines that need a figure too."""
    return _GENERAL_MARKERS if progress_reader(config.trainer, config.progress_pattern).general else frozenset()


def _is_table_header(line: bytes) -> bool:
    """Return whether the line names the columns of a table."""
    if len(line) > tables.MAX_WIDTH + 100:
        return False
    return _is_header_layout(mask_digits(line))


def _make_row_pattern(header: bytes) -> re.Pattern[bytes]:
    """Return the pattern of rows: they have the prefix of the header, with other digits, before their first number."""
    message = find_message(clean_line(header.decode(errors="replace"))[0]).text.encode(errors="replace")
    prefix = re.escape(header.removesuffix(message))
    if len(prefix) > _MAX_PREFIX or not header.endswith(message):
        return _ROW_START
    return re.compile(rb"(?m)^(?:" + _STAMP + rb"|" + re.sub(rb"\d", rb"\\d", prefix) + rb")?" + _NUMBER_FIRST)


@lru_cache(maxsize=skeletons.TABLE_SIZE)
def _is_header_layout(masked: bytes) -> bool:
    """Return the answer for a line whose digits are ones: only its prefix has digits."""
    plain, _ = clean_line(masked.decode(errors="replace"))
    return tables.parse_header(find_message(plain).text) is not None


@cache
def _build_automaton(literals: tuple[bytes, ...]) -> BytesAhoCorasick:
    """Return an automaton that all containers of a job share; it has no state."""
    return BytesAhoCorasick(literals, matchkind=MatchKind.LeftmostFirst)


def _split(block: bytes) -> Iterator[LineRange]:
    start = 0
    while start < len(block):
        end = _find_line_end(block, start)
        yield start, end
        start = end + 1


def _find_line_end(block: bytes, position: int) -> int:
    end = block.find(b"\n", position)
    return len(block) if end < 0 else end
