"""The reader of the progress in one container's log, for any program.

It keeps templates, the block that the line belongs to, and the columns of a table.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from kfjob.joblog.lines.line_text import cut_line, find_newest_state, to_count
from kfjob.joblog.lines.meanings import Phase, Quantity
from kfjob.joblog.lines.prefixes import clean_line, find_message
from kfjob.joblog.lines.vocabulary import CLEAR_COUNT, SPARE_COUNT
from kfjob.joblog.progress.exact_formats import ProgressReader
from kfjob.joblog.progress.figures import bars, tables
from kfjob.joblog.progress.figures.bars import CURSOR_UP, MARKER, BarRole, find_role, parse_bar, split_nested, split_states
from kfjob.joblog.progress.figures.line_figures import (
    UNNAMED,
    Content,
    Counter,
    Figures,
    announces_training,
    parse_message,
    read_content,
)
from kfjob.joblog.progress.general.candidates import is_candidate, may_hold_progress
from kfjob.joblog.progress.general.reader_state import (
    ReaderState,
    Transition,
    add_figures,
    add_pair,
    add_reading,
    add_step,
    add_value,
    begin_block,
    continues,
    merge_figures,
)
from kfjob.joblog.progress.general.templates import bar_reading, make_key
from kfjob.joblog.progress.milestones import parse_milestone
from kfjob.joblog.progress.reading import FormatName, Line, LineReading, Reading


def read_progress(text: str, number: int, time: int | None, formats: ProgressReader, general: ReaderState) -> Transition:
    """Return the reader after one line, and the readings in it."""
    if reading := formats.read(text):
        state = find_newest_state(text, formats.read) if "\r" in text else text
        line = Line(text=(state or text).strip(), number=number, time=time)
        return general, (LineReading(reading=reading, line=line),)
    if not formats.general:
        return general, ()
    if not is_candidate(text) and not (general.table is not None and _is_row(clean_line(text)[0], general)):
        return general, ()
    if "\r" not in text:
        return _read_state(text, number, time, general)
    line_readings: tuple[LineReading, ...] = ()
    for state in split_states(cut_line(text), is_first=general.primary is None):
        general, readings = _read_state(state, number, time, general)
        line_readings += readings
    return general, line_readings


def _read_state(text: str, number: int, time: int | None, general: ReaderState) -> Transition:
    """Return the reader after one state of a line, and the readings in it.

    A bar below another one counts only if it has the loss, and the one above has none: else it is evaluation within training.
    """
    if CURSOR_UP not in text:
        return _read_part(text, number, time, general)
    nested, rest = split_nested(text)
    bar = parse_bar(nested) if general.has_nested_bar or not general.has_loss else None
    if bar is None or bar.loss is None:
        return _read_part(rest, number, time, general)
    general, line_readings = _read_part(nested, number, time, general)
    general, others = _read_part(rest, number, time, replace(general, has_nested_bar=general.has_loss))
    return general, (*line_readings, *others)


def _read_part(text: str, number: int, time: int | None, general: ReaderState) -> Transition:
    """Return the reader after the text of one bar, or of a line without one."""
    plain, prefix_time = clean_line(text)
    if not _may_matter(plain, general):
        return general, ()
    return _read_line(general, Line(text=plain, number=number, time=prefix_time if time is None else time))


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


_MAX_HEADING = 120
"""Characters of the heading of a block."""
_PAIR = re.compile(r"[^(]{0,120}+(\((?P<rank>\d{1,6})/\d{1,6}\))")
"""It matches a rank and the number of ranks, or a step and the number of steps, with what stands before it."""
_WEB_REQUEST = " HTTP/"


def _read_line(reader: ReaderState, line: Line) -> Transition:
    """Return the reader after one state of a line, and the readings in it.

    An evaluation before the first line of progress counts once that shows that the program trains.
    """
    reader, line_readings = _dispatch_line(reader, line)
    if reader.early is None or reader.primary is None:
        return reader, line_readings
    return replace(reader, early=None), (reader.early, *line_readings)


def _dispatch_line(reader: ReaderState, line: Line) -> Transition:
    if not line.text.strip() or _WEB_REQUEST in line.text:
        return reader, ()
    if announces_training(line.text):
        reader = replace(reader, announced=True)
    if MARKER in line.text:
        figures = bars.parse_bar(line.text)
        return (reader, ()) if figures is None else _add_bar(reader, figures, line)
    return _read_text(reader, line)


def _add_bar(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    figures = _with_row(reader, figures, line.text)
    role = find_role(figures)
    if role is BarRole.OTHER:
        return reader, ()
    if role is BarRole.EVALUATION:
        return _add_evaluation(reader, figures, line)
    if role is BarRole.NAMELESS:
        return _add_nameless(reader, figures, line)
    if role is BarRole.EPOCHS:
        return add_figures(_with_epoch_bar(reader, figures), replace(figures, is_epoch_bar=True), line)
    return add_figures(reader, figures, line)


def _with_epoch_bar(reader: ReaderState, figures: Figures) -> ReaderState:
    """Return the reader with the epoch that a bar of epochs counts; a bar of steps may be named after its epoch, too."""
    bar = figures.counters[0]
    if bar.total is None or not (bars.counts_epochs_clearly(figures) or reader.counts_other_bar):
        return reader
    epoch = Counter(Quantity.EPOCH, 0, "epoch", min(bar.value + 1, bar.total), bar.total)
    return replace(reader, epoch=Figures(counters=(epoch,)))


def _add_nameless(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a bar without a name: it counts while the program trains, and not within a longer bar."""
    bar, before = figures.counters[0], reader.bar
    is_nested = before is not None and (bar.total or 0) < (before.total or 0) and before.value < (before.total or 0)
    if not reader.announced or is_nested:
        return reader, ()
    return add_reading(replace(reader, bar=bar), bar_reading(figures), line)


def _with_row(reader: ReaderState, figures: Figures, text: str) -> Figures:
    """Return the bar with the figures of the table's row before it, as YOLO prints it."""
    description = find_message(text.partition(MARKER)[0].rpartition(":")[0]).text
    if reader.table is None or not tables.looks_like_row(description):
        return figures
    row = tables.read_row(reader.table, description)
    if row is None:
        return figures
    merged = merge_figures(replace(figures, counters=figures.counters[:1]), parse_message(row))
    return replace(merged, words=("epoch",), phase=Phase.NONE)


def _read_text(reader: ReaderState, line: Line) -> Transition:
    reader, line = _close_name(reader, line)
    if row := _read_row(reader, line.text):
        return _add_row(reader, row, line)
    content = read_content(line.text)
    figures = content.figures
    if content.header and (reader.table is None or not content.header.open_name):
        reader = replace(reader, table=content.header)
    if not content.is_cell and _is_counter_first(reader, figures, line):
        figures = parse_message(_PAIR.sub(r"\1", line.text, count=1))
    if figures.is_empty:
        return _read_words(reader, content), ()
    is_evaluation = figures.loss is None and figures.evaluation_loss is not None and not _counts_training(reader, figures)
    if figures.phase is Phase.EVALUATION or is_evaluation:
        return _add_evaluation(reader, figures, line)
    if content.is_preparation:
        return reader, ()
    if content.is_cell:
        return add_pair(reader, figures, line)
    return _add_message(reader, figures, line)


def _close_name(reader: ReaderState, line: Line) -> tuple[ReaderState, Line]:
    """Return the reader and the line with the name that the line before it ends with, where a narrow terminal wrapped it."""
    name = reader.table.open_name if reader.table else ""
    if not name:
        return reader, line
    text = f"{name}: {line.text.strip()}" if tables.looks_like_row(line.text) else line.text
    return replace(reader, table=None), replace(line, text=text)


def _read_row(reader: ReaderState, text: str) -> Figures | None:
    """Return the figures of a row of the table above the line."""
    table, message = reader.table, find_message(text)
    if table is None or table.is_above_bars or not tables.looks_like_row(message.text):
        return None
    row = tables.read_row(table, message.text)
    return parse_message(row, rank=message.rank) if row else None


def _add_row(reader: ReaderState, row: Figures, line: Line) -> Transition:
    if row.phase is Phase.EVALUATION:
        return _add_evaluation(reader, row, line)
    return add_figures(reader, row, line) if row.counters else (reader, ())


def _read_words(reader: ReaderState, content: Content) -> ReaderState:
    """Return the reader after a line without a figure: it may be the heading of an evaluation."""
    if content.header or reader.block is None or len(content.message.text) >= _MAX_HEADING or not content.names_evaluation:
        return reader
    return replace(reader, evaluating=True)


def _add_message(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    named = tuple(counter for counter in figures.counters if counter.priority < SPARE_COUNT)
    if not named and figures.counters:
        after, readings = add_figures(reader, figures, line)
        if readings or reader.block is None or not continues(reader, line):
            return after, readings
        reader, figures = after, replace(figures, counters=())
    has_value = figures.loss is not None or figures.speed is not None or figures.evaluation_loss is not None
    if has_value and figures.counters:
        return add_step(reader, figures, line)
    if figures.counters:
        return begin_block(reader, figures, line)
    return add_value(reader, figures, line)


def _is_counter_first(reader: ReaderState, figures: Figures, line: Line) -> bool:
    """Return whether `(60/1000) loss=2.3` begins with the step, and not with a rank: nothing else in it counts."""
    pair = _PAIR.match(line.text) if figures.rank is not None and figures.loss is not None else None
    if pair is None or int(pair["rank"]) != figures.rank:
        return False
    has_name = any(counter.name != UNNAMED for counter in figures.counters)
    return not has_name and not continues(reader, line)


def _counts_training(reader: ReaderState, figures: Figures) -> bool:
    """Return whether a line with an evaluation loss counts training, as where a program prints no other loss."""
    if reader.primary is not None and reader.primary not in {make_key(figures, joined=joined) for joined in (False, True)}:
        return False
    return figures.counts(Quantity.EPOCH) or (figures.speed is not None and figures.counts(Quantity.STEP))


def _add_evaluation(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    if not figures.is_bar and figures.evaluation_loss is None:
        reader = replace(reader, evaluating=True)
    if figures.evaluation_loss is None or (reader.primary is None and figures.is_bar):
        return reader, ()
    clear = (counter for counter in figures.counters if counter.priority < CLEAR_COUNT)
    steps = [counter.value for counter in clear if counter.quantity is Quantity.STEP]
    reading = Reading(
        format=FormatName.GENERAL,
        evaluation_loss=figures.evaluation_loss,
        evaluation_step=to_count(steps[0]) if steps and not figures.is_bar else None,
        rank=figures.rank,
        extra=True,
    )
    line_reading = LineReading(reading=reading, line=line)
    return (replace(reader, early=line_reading), ()) if reader.primary is None else (reader, (line_reading,))
