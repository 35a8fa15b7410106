"""The progress in one container's log: known formats first, then the general reader for lines of other programs."""

from __future__ import annotations

import re

from ahocorasick_rs import AhoCorasick

from kfjob.observe.general import tables
from kfjob.observe.general.bars import split_states
from kfjob.observe.general.prefixes import strip_prefixes
from kfjob.observe.general.reader import read_line
from kfjob.observe.general.skeletons import may_hold_progress
from kfjob.observe.general.state import Emission, GeneralReader, Line, Step
from kfjob.observe.lines import clean_line, cut_line, find_newest_state
from kfjob.observe.milestones import parse_milestone
from kfjob.observe.progress import ProgressReader, Reading, remove_nested_bars

MARKERS = (
    "loss", "Loss", "LOSS", "step", "Step", "STEP", "epoch", "Epoch", "EPOCH", "iter", "Iter", "ITER", "pdate", "batch",
    "Batch", "it/s", "s/it", "%|█", "%|##", "%|  ", "/sec", "per_sec", "per second", "ples/s", "ens/s", "hroughput",
    "peed", "learn", " lr ", " lr:", " lr-", " lr=", "/lr=", '"lr"', "'lr'", "_lr ", "_lr=", "_lr:", " LR ", " LR:", " LR=",
    "/LR ", "rmse", "ntropy", "Up. ", "tick ", " fps", "raining", "VALI", "VAL ", "alid", "pass: ", "SPS:", "Cost",
    "cost", "ound ", "pisode", "perte", "损失",
)  # fmt: skip
"""Every line with a figure of training contains one of these. The prefilter searches for them too.

A search for at most 64 literals of at least four bytes reads many bytes at once. With one literal
more it took three to six times as long.
"""
FIRST_MARKERS = ("lr:", "lr=", "lr ")
"""A line with a figure of training may begin with one of these."""

_RANK = re.compile(r"(?i)(?<!local )(?<!node )(?<!group )\b(?:rank|default)[ :=_-]{0,2}(\d{1,6})\b")
"""The rank that a known format names: `[rank0]:`, `[default0]:`, `[Rank 0]`."""
_MAX_RANK_POSITION = 80
"""Characters of a line in which the name of its rank is searched."""
_AUTOMATON = AhoCorasick(MARKERS)


def read_progress(text: str, number: int, time: int | None, formats: ProgressReader, general: GeneralReader) -> Step:
    """Return the reader after one line, and the readings in it."""
    if not formats.general:
        reading = formats.read(text)
        state = find_newest_state(text, formats.read) or text if reading else ""
        line = Line(text=state.strip(), number=number, time=time)
        return general, (Emission(reading=reading, line=line),) if reading else ()
    if not _is_candidate(text, general):
        return general, ()
    if "\r" not in text:
        return _read_state(text, number, time, formats, general)
    emissions: tuple[Emission, ...] = ()
    for state in split_states(remove_nested_bars(cut_line(text))):
        general, readings = _read_state(state, number, time, formats, general)
        emissions += readings
    return general, emissions


def _read_state(text: str, number: int, time: int | None, formats: ProgressReader, general: GeneralReader) -> Step:
    """Return the reader after one state of a line."""
    plain, prefix_time = clean_line(remove_nested_bars(text))
    known = _read_known(formats, plain, prefix_time)
    if known is None and not _may_matter(plain, general):
        return general, ()
    return read_line(general, Line(text=plain, number=number, time=prefix_time if time is None else time), known)


def _read_known(formats: ProgressReader, plain: str, prefix_time: int | None) -> Reading | None:
    """Return the reading of a known format; the general reader reads bars without a loss, which need more evidence."""
    reading = formats.read_plain(plain, prefix_time)
    if reading is None or not reading.conclusive:
        return None
    if plain.startswith("("):
        return reading.with_rank(strip_prefixes(plain).rank)
    head = plain[:_MAX_RANK_POSITION]
    rank = _RANK.search(head) if "ank" in head or "ANK" in head or "[default" in head else None
    return reading.with_rank(int(rank[1])) if rank else reading


def _may_matter(plain: str, general: GeneralReader) -> bool:
    """Return whether the general reader needs the line; the rows of a table have no layout of their own.

    It never needs the messages of kfjob's trainer: the view reads them as milestones.
    """
    if not may_hold_progress(plain) and not (general.table is not None and tables.looks_like_row(plain)):
        return False
    return parse_milestone(plain) is None


def _is_candidate(text: str, general: GeneralReader) -> bool:
    if text.startswith(FIRST_MARKERS) or _AUTOMATON.find_matches_as_indexes(text):
        return True
    return general.table is not None and tables.looks_like_row(text)
