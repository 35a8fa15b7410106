"""The gate before progress is read: the markers of the known formats, and those of the general reader.

Whatever chooses lines for their progress asks the gate, so that a row of `progress.FORMATS` needs no other list.
"""

from __future__ import annotations

from functools import lru_cache

from ahocorasick_rs import AhoCorasick

from kfjob.joblog.lines.numbers import mask_digits
from kfjob.joblog.lines.text import clean_line
from kfjob.joblog.progress.formats import ProgressFormat, ProgressReader
from kfjob.joblog.progress.general.markers import FIRST_MARKERS, FOREIGN_MARKERS, MAIN_MARKERS, MORE_MARKERS, RARE_MARKERS
from kfjob.joblog.progress.general.skeletons import MAX_LENGTH, TABLE_SIZE, UNREAD, Layout, read_masked


class Gate:
    """Chooses the lines of a job's logs that may hold progress, where lines of unknown programs are read too."""

    def __init__(self, formats: tuple[ProgressFormat, ...]) -> None:
        """Let the lines of these formats pass, and those that the general reader may need."""
        self._pairs = [(_mask(item.marker), _mask(item.literal)) for item in formats]
        own = dict.fromkeys(literal for item in formats if (literal := _find_own_literal(item)) is not None)
        self.reads_all = "" in own
        """Whether a format has no literal at all, so that each line may belong to it."""
        self.main = (*MAIN_MARKERS, *own)
        """Every line of a known format contains one of these, and so does a line of nearly every log with figures."""
        self._automaton = AhoCorasick([*filter(None, self.main), *MORE_MARKERS, *FOREIGN_MARKERS, *RARE_MARKERS])

    def is_candidate(self, text: str) -> bool:
        """Return whether the line has a marker; rows of tables have none."""
        if "loss" in text or "Loss" in text:
            return True  # as nearly every line of progress
        return self.reads_all or text.startswith(FIRST_MARKERS) or bool(self._automaton.find_matches_as_indexes(text))

    def read_layout(self, line: bytes) -> Layout:
        """Return what the layout of the line says; a line with the literals of a known format always matters."""
        return UNREAD if len(line) > MAX_LENGTH else _read_layout(self, mask_digits(line.rstrip(b"\r")))

    def names_format(self, masked: bytes) -> bool:
        """Return whether a line whose digits are ones has the literals of a known format."""
        plain = clean_line(masked.decode(errors="replace"))[0]  # a colour may stand inside a literal
        return any(marker in plain and literal in plain for marker, literal in self._pairs)


@lru_cache(maxsize=TABLE_SIZE)
def _read_layout(gate: Gate, masked: bytes) -> Layout:
    layout = read_masked(masked)
    return UNREAD if not layout.matters and gate.names_format(masked) else layout


@lru_cache(maxsize=64)
def make_gate(reader: ProgressReader) -> Gate:
    """Return the gate of one reader."""
    return Gate(reader.formats)


def _mask(text: str) -> str:
    return mask_digits(text.encode()).decode()


def _find_own_literal(item: ProgressFormat) -> str | None:
    """Return the literal by which a search finds the lines of the format; None if a main marker finds them."""
    if any(marker in literal for literal in (item.marker, item.literal) for marker in MAIN_MARKERS):
        return None
    return max(item.marker, item.literal, key=len)
