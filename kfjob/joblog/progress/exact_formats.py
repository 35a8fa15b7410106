"""The exact formats of progress lines: that of kfjob's trainer, and the pattern in a job's spec.

Lines of all other programs go to the general reader (`general.log_reader`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.base.errors import SpecError
from kfjob.base.patterns import Match, Pattern
from kfjob.base.units import COUNT_SUFFIXES
from kfjob.joblog.lines.line_text import parse_count, parse_number
from kfjob.joblog.lines.meanings import Quantity, find_meaning, parse_unit, split_name
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_rfc3339
from kfjob.joblog.progress.figures.line_figures import name_without_unit
from kfjob.joblog.progress.pattern import PROGRESS_GROUPS, check_pattern
from kfjob.joblog.progress.reading import FormatName, Reading

KFJOB_TRAINER = "kfjob"
"""Value of `ObserveConfig.trainer` for kfjob's trainer: it prints progress lines of one format, and `milestones`."""
_TRAINER_LINE = Pattern(
    r"(?:(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?) .*?)?\bBatch (?P<step>\d+) Loss: (?P<loss>[^\s,]+), "
    r"Speed: (?P<speed>[^\s,]+) samples/sec(?:.*?, lr: (?P<lr>[^\s,]+))?"
)
"""The progress line of kfjob's trainer and of the reference sample (awsome-distributed-training, FSDP train.py)."""
_VALIDATION_LINE = Pattern(r"\bBatch (?P<step>\d+) Validation loss: (?P<loss>[^\s,]+)")
"""The line of the reference sample about an evaluation."""
_TRAINER_WORD = "Batch"
"""What every line of the trainer contains, also before its colours and prefixes are removed."""


def _parse_number(text: str) -> float:
    scale = COUNT_SUFFIXES.get(text[-1:].lower(), 1)
    return parse_number(text if scale == 1 else text[:-1]) * scale


def _parse_integer(text: str) -> int | None:
    return parse_count(text if text[-1:].lower() not in COUNT_SUFFIXES else f"{_parse_number(text):.0f}")


def _parse_epoch(text: str) -> float | None:
    value = _parse_number(text)
    return value if math.isfinite(value) else None


_INTEGERS = ("step", "total", "epochs", "epoch_steps")
_WITHOUT_VALUE = ("step_unit", "speed_unit", "when")
"""Groups that complete the value of another field."""
_CONVERTERS: Mapping[str, Callable[[str], object]] = (
    {group: _parse_number for group in PROGRESS_GROUPS if group not in _WITHOUT_VALUE}
    | dict.fromkeys(_INTEGERS, _parse_integer)
    | {"unit": str, "epoch": _parse_epoch}
)


def _to_reading(name: str, groups: Mapping[str, str | None], unit: str = "") -> Reading | None:
    """Convert the named groups of a pattern; None if one of them matched text that is not a number."""
    try:
        values: dict[str, Any] = {
            key: convert(text) for key, convert in _CONVERTERS.items() if (text := groups.get(key)) is not None
        }
    except ValueError:
        return None
    if "speed" not in values:
        values.pop("unit", None)
    elif unit:
        values["unit"] = unit
    when = groups.get("when")
    return Reading(format=name, line_time=parse_rfc3339(when) if when else None, **values)


def _read_trainer_line(text: str) -> Reading | None:
    if evaluation := _VALIDATION_LINE.search(text) if " Validation loss: " in text else None:
        values = _to_reading(FormatName.TRAINER, evaluation.groupdict())
        return values and Reading(format=values.format, evaluation_loss=values.loss, evaluation_step=values.step)
    match = _TRAINER_LINE.search(text) if " samples/sec" in text else None
    return _to_reading(FormatName.TRAINER, match.groupdict(), "samples/s") if match else None


def custom_format(pattern: str) -> ReadLine:
    """Return the reader of a job's own progress line: a regular expression with named groups (`kfjob.joblog.progress.pattern`).

    Raises:
        SpecError: the pattern is not a regular expression, or it has other groups.
    """
    if problems := check_pattern(pattern):
        raise SpecError(problems)
    compiled = Pattern(pattern)

    def read(text: str) -> Reading | None:
        match = compiled.search(text)
        return _to_reading(FormatName.CUSTOM, _join_units(match.groupdict()), _find_unit(match)) if match else None

    return read


def _find_unit(match: Match) -> str:
    """Return the unit of the speed: the word after it, or the name before it, as in `tok/s 3267`; "" without a speed."""
    if match.groupdict().get("speed") is None:
        return ""
    before, after = match.around("speed")
    words = after.removeprefix(" ").split(maxsplit=1)
    meaning = parse_unit(words[0].rstrip(",;|)]")) if words else None
    name = re.split(r"[\s\[(|,]", before.rstrip(" :=\"'"))[-1]
    meaning = meaning or (find_meaning(split_name(name)) if name else None)
    if meaning is None or meaning.quantity is not Quantity.SPEED:
        return ""
    return meaning.unit or name_without_unit(before)


def _join_units(groups: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Return the groups with K, M and the like, which a group of their own matched, after their numbers."""
    units = {key: (groups.get(f"{key}_unit") or "").strip() for key in ("step", "speed") if groups.get(key)}
    return {**groups, **{key: f"{groups[key]}{unit}" for key, unit in units.items() if unit.lower() in COUNT_SUFFIXES}}


ReadLine = Callable[[str], Reading | None]
"""A function that returns the values in a line; None if it has another format."""


class ProgressReader(Struct, frozen=True, eq=False):
    """The exact formats of one job, in the order in which they are tried; each reader equals itself alone."""

    formats: tuple[ReadLine, ...] = ()
    general: bool = True  # whether the general reader reads the other lines
    word: str = ""  # which every line of an exact format contains

    def read(self, text: str) -> Reading | None:
        """Return the values in the line, None if it is not a progress line of an exact format."""
        if self.word not in text:
            return None
        plain, prefix_time = clean_line(text)
        for read in self.formats:
            if reading := read(plain):
                return reading if prefix_time is None else replace(reading, line_time=prefix_time)
        return None


@lru_cache(maxsize=64)
def progress_reader(trainer: str = "", pattern: str | None = None) -> ProgressReader:
    """Return the reader for the lines of a job: those of kfjob's trainer are exact in every job.

    The job's own pattern comes first, and switches the general reader off: the user knows better.
    """
    if pattern is not None:
        return ProgressReader((custom_format(pattern), _read_trainer_line), general=False)
    return ProgressReader((_read_trainer_line,), general=trainer != KFJOB_TRAINER, word=_TRAINER_WORD)
