"""The progress in one container's log: known formats first, then the general reader for lines of other programs."""

from __future__ import annotations

from ahocorasick_rs import AhoCorasick

from kfjob.observe.general import tables
from kfjob.observe.general.bars import split_states
from kfjob.observe.general.prefixes import strip_prefixes
from kfjob.observe.general.reader import read_line
from kfjob.observe.general.skeletons import may_hold_progress
from kfjob.observe.general.state import Emission, GeneralReader, Line
from kfjob.observe.lines import clean_line, cut_line, find_newest_state
from kfjob.observe.milestones import parse_milestone
from kfjob.observe.progress import ProgressReader, Reading, remove_nested_bars

MARKERS = (
    "oss", "OSS", "tep", "TEP", "poch", "POCH", "iter ", "iter:", "iter=", "iter[", "iter(", "iter'", 'iter"', "iter\t",
    "iters", "iterat", "iter/", "Iter", "ITER", "pdate", "atch ", "atch:", "atch=", "%|", "it/s", "/sec", "per_sec",
    "per second", "ples/s", "ens/s", "ok/s", "hroughput", "peed", "learning", "lr:", "lr=", "lr-", "lr_", "rmse",
    "learn:", "ntropy", "Up. ", "lr ", "lr'", 'lr"', "LR:", "LR=", "LR ", "LR (", "tick ", "fps", "raining", "VAL",
    "Valid", "valid", "pass: ", "SPS", "TPS", "Cost", "cost", "round ", "Round ", "episode", "Episode", "ounds:",
)  # fmt: skip
"""Every line with a figure of training contains one of these. The prefilter searches for them too."""

_AUTOMATON = AhoCorasick(MARKERS)


def read_progress(
    text: str, number: int, time: int | None, formats: ProgressReader, general: GeneralReader
) -> tuple[GeneralReader, list[Emission]]:
    """Return the reader after one line, and the readings in it."""
    if not formats.general:
        reading = formats.read(text)
        state = find_newest_state(text, formats.read) or text if reading else ""
        line = Line(text=state.strip(), number=number, time=time)
        return general, [Emission(reading=reading, line=line)] if reading else []
    if not _is_candidate(text, general):
        return general, []
    emissions: list[Emission] = []
    for state in split_states(remove_nested_bars(cut_line(text))):
        plain, prefix_time = clean_line(state)
        known = _read_known(formats, plain, prefix_time)
        if known is None and not _may_matter(plain, general):
            continue
        line = Line(text=plain, number=number, time=prefix_time if time is None else time)
        general, readings = read_line(general, line, known)
        emissions += readings
    return general, emissions


def _read_known(formats: ProgressReader, plain: str, prefix_time: int | None) -> Reading | None:
    """Return the reading of a known format; the general reader reads bars without a loss, which need more evidence."""
    reading = formats.read_plain(plain, prefix_time)
    if reading is None or not reading.conclusive:
        return None
    may_name_rank = "ank" in plain[:80] or plain.startswith(("(", "[default"))
    return reading.with_rank(strip_prefixes(plain).rank) if may_name_rank else reading


def _may_matter(plain: str, general: GeneralReader) -> bool:
    """Return whether the general reader needs the line; the rows of a table have no layout of their own.

    It never needs the messages of kfjob's trainer: the view reads them as milestones.
    """
    if not may_hold_progress(plain) and not (general.table is not None and tables.looks_like_row(plain)):
        return False
    return parse_milestone(plain) is None


def _is_candidate(text: str, general: GeneralReader) -> bool:
    if _AUTOMATON.find_matches_as_indexes(text):
        return True
    return general.table is not None and tables.looks_like_row(text)
