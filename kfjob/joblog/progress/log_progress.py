"""The progress in one container's log: known formats first, then the general reader for lines of other programs."""

from __future__ import annotations

from msgspec.structs import replace

from kfjob.joblog.lines.prefixes import split_prefix
from kfjob.joblog.lines.text import clean_line, cut_line, find_newest_state
from kfjob.joblog.progress.figures import tables
from kfjob.joblog.progress.figures.bars import CURSOR_UP, MARKER, parse_bar, split_nested, split_states
from kfjob.joblog.progress.figures.messages import find_message
from kfjob.joblog.progress.formats import ProgressReader
from kfjob.joblog.progress.general.gate import make_gate
from kfjob.joblog.progress.general.reader import read_line
from kfjob.joblog.progress.general.skeletons import may_hold_progress
from kfjob.joblog.progress.general.state import Emission, Line, ReaderState, Transition
from kfjob.joblog.progress.milestones import parse_milestone
from kfjob.joblog.progress.reading import Reading


def read_progress(text: str, number: int, time: int | None, formats: ProgressReader, general: ReaderState) -> Transition:
    """Return the reader after one line, and the readings in it."""
    if not formats.general:
        reading = formats.read(text)
        state = find_newest_state(text, formats.read) or text if reading else ""
        line = Line(text=state.strip(), number=number, time=time)
        return general, (Emission(reading=reading, line=line),) if reading else ()
    if not make_gate(formats).is_candidate(text) and not (general.table is not None and _is_row(clean_line(text)[0], general)):
        return general, ()
    if "\r" not in text:
        return _read_state(text, number, time, formats, general)
    emissions: tuple[Emission, ...] = ()
    for state in split_states(cut_line(text), is_first=general.primary is None):
        general, readings = _read_state(state, number, time, formats, general)
        emissions += readings
    return general, emissions


def _read_state(text: str, number: int, time: int | None, formats: ProgressReader, general: ReaderState) -> Transition:
    """Return the reader after one state of a line, and the readings in it.

    A bar below another one counts only if it has the loss, and the one above has none: else it is evaluation within training.
    """
    if CURSOR_UP not in text:
        return _read_part(text, number, time, formats, general)
    nested, rest = split_nested(text)
    bar = parse_bar(nested) if general.has_nested_bar or not general.has_loss else None
    if bar is None or bar.loss is None:
        return _read_part(rest, number, time, formats, general)
    general, emissions = _read_part(nested, number, time, formats, general)
    general, others = _read_part(rest, number, time, formats, replace(general, has_nested_bar=general.has_loss))
    return general, (*emissions, *others)


def _read_part(text: str, number: int, time: int | None, formats: ProgressReader, general: ReaderState) -> Transition:
    """Return the reader after the text of one bar, or of a line without one."""
    plain, prefix_time = clean_line(text)
    known = _read_known(formats, plain, prefix_time)
    if known is None and not _may_matter(plain, general):
        return general, ()
    return read_line(general, Line(text=plain, number=number, time=prefix_time if time is None else time), known)


def _read_known(formats: ProgressReader, plain: str, prefix_time: int | None) -> Reading | None:
    """Return the reading of a known format; the general reader reads bars without a loss, which need more evidence."""
    text = find_message(plain).text if MARKER in plain else plain
    reading = formats.read_plain(text, prefix_time)
    if reading is None or not reading.conclusive:
        return None
    rank = split_prefix(plain)[0].rank
    return reading if rank is None else reading.with_rank(rank)


def _may_matter(plain: str, general: ReaderState) -> bool:
    """Return whether the general reader needs the line; the rows of a table have no layout of their own.

    It never needs the messages of kfjob's trainer: the view reads them as milestones.
    """
    if not _is_row(plain, general) and not may_hold_progress(plain.encode(errors="replace")):
        return False
    return parse_milestone(plain) is None


def _is_row(plain: str, general: ReaderState) -> bool:
    """Return whether the line may be a row of the table above it."""
    return general.table is not None and (tables.looks_like_row(plain) or tables.looks_like_row(find_message(plain).text))
