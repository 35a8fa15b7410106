"""Progress lines of kfjob's trainer, the reference sample and common trainers, and patterns from a job's spec.

A format is one row of `FORMATS`: a literal that each of its lines contains, and a parser. Formats share literals where
possible, so that other lines cost few scans. A new trainer is a new row: `general.candidates` takes the literals from here. A
row costs no time in other logs if its marker or its literal contains one of its `MAIN_MARKERS`. Units stay as
printed, except that `s/it` becomes `it/s`.
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
from kfjob.joblog.lines.line_text import MAX_NUMBER, cut_line, mask_digits, parse_count, parse_number, to_count
from kfjob.joblog.lines.meanings import Phase, Quantity, find_meaning, find_phase, parse_unit, split_name
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_rfc3339
from kfjob.joblog.lines.vocabulary import COUNTER_WORDS
from kfjob.joblog.progress.figures.bars import MARKER, BarRole, find_bar, find_role, read_bar, remove_nested_bars
from kfjob.joblog.progress.figures.line_figures import name_without_unit
from kfjob.joblog.progress.pattern import PROGRESS_GROUPS, check_pattern
from kfjob.joblog.progress.reading import FormatName, Reading


class ProgressFormat(Struct, frozen=True):
    """How one trainer prints progress.

    Each of its lines contains `marker` and `literal`; with "" every line is parsed. Formats share markers, for which kfjob
    searches whole logs. They differ in their literals, so that few formats parse a line.
    """

    name: str
    marker: str
    read: Callable[[str], Reading | None]
    literal: str = ""


_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
_TIME = r"(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)"


_MAX_LAYOUTS = 256
"""Layouts of the lines of a format to remember: lines that differ only in their digits have one."""
_SAFE_DIGITS = 18
"""Digits below which a whole number is never larger than `MAX_COUNT`."""


def _parse_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        scale = COUNT_SUFFIXES.get(text[-1:].lower(), 1)
        return parse_number(text if scale == 1 else text[:-1]) * scale
    return value if abs(value) <= MAX_NUMBER else parse_number(text)


def _parse_integer(text: str) -> int | None:
    if text.isdecimal() and len(text) < _SAFE_DIGITS:
        return int(text)
    return parse_count(text if text[-1:].lower() not in COUNT_SUFFIXES else f"{_parse_number(text):.0f}")


def _parse_epoch(text: str) -> float | None:
    value = _parse_number(text)
    return value if math.isfinite(value) else None


_INTEGERS = frozenset({"step", "total", "epochs", "epoch_steps"})
_TEXTS = frozenset({"unit"})
_WITHOUT_VALUE = frozenset({"step_unit", "speed_unit", "when"})
"""Groups that complete the value of another field."""


def _find_converter(group: str) -> Callable[[str], object]:
    if group in _TEXTS:
        return str
    if group == "epoch":
        return _parse_epoch
    return _parse_integer if group in _INTEGERS else _parse_number


_CONVERTERS: Mapping[str, Callable[[str], object]] = {
    group: _find_converter(group) for group in PROGRESS_GROUPS if group not in _WITHOUT_VALUE
}


def _to_reading(
    name: str, groups: Mapping[str, str | None], *, unit: str = "", per_epoch: bool = False, conclusive: bool = True
) -> Reading:
    """Convert the named groups of a pattern."""
    values: dict[str, Any] = {}
    for key, text in groups.items():
        if text is not None and (convert := _CONVERTERS.get(key)):
            values[key] = convert(text)
    if "speed" not in values:
        values.pop("unit", None)
    elif unit and not values.get("unit"):
        values["unit"] = unit
    when = groups.get("when")
    line_time = parse_rfc3339(when) if when else None
    return Reading(format=name, line_time=line_time, per_epoch=per_epoch, conclusive=conclusive, **values)


def _pattern_format(
    name: str, marker: str, pattern: str, *, literal: str = "", unit: str = "", per_epoch: bool = False
) -> ProgressFormat:
    """Return a format whose parser is one regular expression; `@` in it stands for a number."""
    expression = Pattern(pattern.replace("@", _NUMBER))

    @lru_cache(maxsize=_MAX_LAYOUTS)
    def find_groups(masked: bytes) -> Mapping[str, tuple[int, int]] | None:
        match = expression.search(masked.decode(errors="replace"))
        return match.spans() if match else None

    def read(text: str) -> Reading | None:
        line = text.encode(errors="replace")
        groups = find_groups(mask_digits(line))  # no pattern tells one digit from another
        if groups is None:
            return None
        values = {group: line[start:end].decode() for group, (start, end) in groups.items()}
        return _to_reading(name, values, unit=unit, per_epoch=per_epoch)

    return ProgressFormat(name, marker, read, literal)


_PAIR = Pattern(rf"'(\w+)': '?({_NUMBER})'?")


def _read_hugging_face(text: str) -> Reading | None:
    """Read `{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.1}`; transformers 5 quotes the numbers."""
    pairs = dict(match.groups() for match in _PAIR.find_all(text[text.index("'loss'") - 1 :])) if "{'loss'" in text else {}
    if not pairs.keys() >= {"loss", "learning_rate"}:
        return None  # other programs print dictionaries with a loss, too
    return _to_reading("hugging-face", pairs | {"lr": pairs.get("learning_rate")})


_MEGATRON = Pattern(rf"(?:\[{_TIME}[^\]]*\] )?iteration\s+(?P<step>\d+)/\s*(?P<total>\d+) \|(?P<rest>.*)")
_MEGATRON_PAIR = Pattern(rf"\s([a-z][\w ()-]*?):?\s+({_NUMBER}) \|")


def _read_megatron(text: str) -> Reading | None:
    """Read a line of Megatron-LM (megatron/training/training.py `training_log`); the last rank prints it.

    The speed is the global batch size divided by the time per iteration, or iterations per second without a batch size.
    """
    if not (match := _MEGATRON.search(text)):
        return None
    pairs = {pair[1].strip().replace("_", " "): pair[2] for pair in _MEGATRON_PAIR.find_all(match["rest"])}
    if not pairs.keys() >= {"elapsed time per iteration (ms)", "learning rate"}:
        return None  # NeMo 2 and others print `iteration 1/9 |` too
    elapsed = _parse_number(pairs["elapsed time per iteration (ms)"])
    batch = _parse_number(pairs.get("global batch size", "0"))
    speed = f"{(batch or 1) * 1000 / elapsed}" if elapsed else None
    values = {"loss": pairs.get("lm loss"), "lr": pairs.get("learning rate"), "grad_norm": pairs.get("grad norm")}
    return _to_reading("megatron", match.groupdict() | values | {"speed": speed}, unit="samples/s" if batch else "it/s")


_NANOGPT = Pattern(rf"\biter (?P<step>\d+): loss (?P<loss>{_NUMBER}), time (?P<milliseconds>{_NUMBER})ms, mfu ")


def _read_nanogpt(text: str) -> Reading | None:
    """Read a line of karpathy/nanoGPT train.py; its time is that of one iteration, also if it prints every tenth one."""
    if not (match := _NANOGPT.search(text)):
        return None
    groups = match.groupdict()
    milliseconds = _parse_number(groups["milliseconds"] or "0")
    speed = f"{1000 / milliseconds}" if milliseconds > 0 else None
    return _to_reading("nanogpt", {"step": groups["step"], "loss": groups["loss"], "speed": speed}, unit="it/s")


def _read_bar(text: str) -> Reading | None:
    """Read a tqdm bar: with a description (Lightning: `Epoch 0: … train_loss=0.5`) or without one (transformers' Trainer)."""
    bar = next((bar for state in reversed(text.split("\r")) if (bar := find_bar(state)) and bar.counts), None)
    if bar is None or bar.counts is None or bar.counts.unit not in {"it/s", "s/it"}:
        return None
    words = tuple(word for word in split_name(bar.name) if not word.isdigit())  # `srun --label` puts a number before the bar
    figures = replace(read_bar(bar, bar.counts), words=words)
    if find_role(figures) not in {BarRole.TRAINING, BarRole.NAMELESS}:
        return None
    epoch = next((item for item in figures.counters if item.quantity is Quantity.EPOCH), None)
    is_named = words and (words[0] in COUNTER_WORDS or find_phase(words) is Phase.TRAINING)
    if words and epoch is None and not (is_named and figures.loss is not None):
        return None  # a name that needs more lines as evidence
    return Reading(
        format=FormatName.BAR,
        step=to_count(bar.counts.step),
        total=to_count(bar.counts.total),
        loss=figures.loss,
        speed=figures.speed,
        unit="" if figures.speed is None else figures.unit,
        epoch=epoch.value if epoch else None,
        epochs=to_count(epoch.total) if epoch else None,
        lr=figures.lr,
        grad_norm=figures.grad_norm,
        evaluation_loss=figures.evaluation_loss,
        per_epoch=epoch is not None,
        is_bar=True,
        conclusive=figures.loss is not None,
    )


KFJOB_TRAINER = "kfjob"
"""Value of `ObserveConfig.trainer` for kfjob's trainer: it prints the reference's progress line and `milestones`."""

FORMATS: tuple[ProgressFormat, ...] = (
    # kfjob's trainer and the reference sample (aws-samples/awsome-distributed-training, FSDP train.py; time and file optional)
    _pattern_format(
        "reference",
        "oss",
        rf"(?:{_TIME} .*?)?\bBatch (?P<step>\d+) Loss: (?P<loss>@), Speed: (?P<speed>@) samples/sec(?:.*?, lr: (?P<lr>@))?",
        unit="samples/s",
        literal=" samples/sec",
    ),
    # meta-llama/llama-recipes train_utils.py: description of the bar
    _pattern_format(
        "llama-recipes",
        "oss",
        r".*Training Epoch: (?P<epoch>\d+)(?:/\d+)?, (?:step|batch) (?P<step>\d+)/(?P<total>\d+) completed \(loss: (?P<loss>@)",
        per_epoch=True,
        literal=" completed (loss: ",
    ),
    ProgressFormat("hugging-face", "oss", _read_hugging_face, "{'loss'"),
    # pytorch/torchtitan components/metrics.py `log`; its validation line starts with `validate step:`
    _pattern_format(
        "torchtitan",
        "loss:",
        rf"(?:{_TIME}.*?)?(?:^|[^ \w]|(?:^|[^e]) )step:\s*(?P<step>\d+)\s+loss:\s+(?P<loss>@)\s+"
        r"(?:grad_norm:\s+(?P<grad_norm>@)\s+)?memory:.*?\btps:\s*(?P<speed>@)",
        unit="tokens/s/device",
        literal="tps:",
    ),
    # karpathy/nanochat base_train.py; its percentage tells it from programs like build-nanogpt, which the general reader reads
    _pattern_format(
        "nanochat",
        "oss",
        r"\bstep\s+(?P<step>\d+)/(?P<total>\d+) \([\d.]+%\) \| loss: (?P<loss>@) \|.*?\btok/sec: (?P<speed>@)",
        unit="tokens/s",
        literal="tok/sec: ",
    ),
    ProgressFormat("nanogpt", "oss", _read_nanogpt, ": loss "),
    ProgressFormat("megatron", "oss", _read_megatron, "iteration"),
    # microsoft/DeepSpeed runtime/engine.py `_report_progress` and utils/timer.py `ThroughputTimer.stop`
    _pattern_format(
        "deepspeed",
        "step=",
        rf"(?:\[{_TIME}\].*?)?\bstep=(?P<step>\d+), skipped=\d+, lr=\[(?P<lr>@)",
        literal=", skipped=",
    ),
    _pattern_format(
        "deepspeed",
        "step=",
        rf"(?:\[{_TIME}\].*?)?\bepoch=(?P<epoch>\d+)/micro_step=\d+/global_step=(?P<step>\d+), "
        r"RunningAvgSamplesPerSec=@, CurrSamplesPerSec=(?P<speed>@)",
        literal=", CurrSamplesPerSec=",
        unit="samples/s",
    ),
    # lightning/pytorch/callbacks/progress/rich_progress.py, the default of Lightning if rich is installed
    _pattern_format(
        "lightning",
        "oss",
        r"\bEpoch (?P<epoch>\d+)/\d+\s+[━╸╺ ]*[━╸╺]\s*(?P<step>\d+)/(?P<total>\d+)\s+\S+ •\s.*?(?:(?P<speed>@)it/s\s.*?)?"
        r"\b(?:train_)?loss(?:_step)?: (?P<loss>@)",
        literal="Epoch ",
        unit="it/s",
        per_epoch=True,
    ),
    ProgressFormat(FormatName.BAR, MARKER, _read_bar, "it/s"),
    ProgressFormat(FormatName.BAR, MARKER, _read_bar, "s/it"),
)


def custom_format(pattern: str) -> ProgressFormat:
    """Return the format of a job's own progress line: a regular expression with named groups (`kfjob.joblog.progress.pattern`).

    Raises:
        SpecError: the pattern is not a regular expression, or it has other groups.
    """
    if problems := check_pattern(pattern):
        raise SpecError(problems)
    compiled = Pattern(pattern)

    def read(text: str) -> Reading | None:
        match = compiled.search(text)
        try:
            reading = _to_reading(FormatName.CUSTOM, _join_units(match.groupdict())) if match else None
        except ValueError:  # a group matched text that is not a number
            return None
        return replace(reading, unit=_find_unit(match)) if match and reading and reading.speed is not None else reading

    return ProgressFormat(FormatName.CUSTOM, "", read)


def _find_unit(match: Match) -> str:
    """Return the unit of the speed: the word after it, or the name before it, as in `tok/s 3267`."""
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


class ProgressReader(Struct, frozen=True, eq=False):
    """The progress formats of one job, in the order in which they are tried; each reader equals itself alone."""

    formats: tuple[ProgressFormat, ...]
    markers: tuple[str, ...]  # every progress line contains one of them; empty: try every line
    general: bool = False  # lines of unknown programs are read too

    def read(self, text: str) -> Reading | None:
        """Return the values in the line, None if it is not a progress line of a known format."""
        if self.markers and not any(marker in text for marker in self.markers):
            return None
        return self.read_plain(*clean_line(remove_nested_bars(cut_line(text))))

    def read_plain(self, plain: str, prefix_time: int | None) -> Reading | None:
        """Return the values in a line without colours and prefixes of log tools."""
        for candidate in self.formats:
            if candidate.marker in plain and candidate.literal in plain and (reading := candidate.read(plain)):
                return reading if prefix_time is None else replace(reading, line_time=prefix_time)
        return None


@lru_cache(maxsize=64)
def progress_reader(trainer: str = "", pattern: str | None = None) -> ProgressReader:
    """Return the reader for one trainer; an unknown name or "" stands for all formats and for the general reader.

    The job's own pattern comes first, and switches the general reader off: the user knows better.
    """
    name = "reference" if trainer == KFJOB_TRAINER else trainer
    formats = tuple(item for item in FORMATS if item.name == name)
    general = not formats and pattern is None
    formats = formats or FORMATS
    if pattern is not None:
        formats = (custom_format(pattern), *formats)
    markers = dict.fromkeys(item.marker for item in formats)
    return ProgressReader(formats, () if "" in markers else tuple(markers), general)
