"""Training progress lines: ours, the reference sample's, those of common trainers, and a pattern of the caller's own.

A format is one row of `FORMATS`: a literal that every line of it holds, shared by as many formats as possible (so that other
lines cost few scans), and what takes a line apart. A new trainer is a new row. Units are kept as printed: nothing is converted
but `s/it` to `it/s`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from kfjob.errors import Problem, SpecError
from kfjob.observe.lines import clean_line
from kfjob.observe.timestamps import parse_rfc3339
from kfjob.spec.progress import check_pattern


class Reading(Struct, frozen=True, kw_only=True):
    """What one progress line says. None: it does not say."""

    format: str
    step: int | None = None  # optimiser steps; of this epoch only, where `per_epoch`
    total: int | None = None
    loss: float | None = None
    speed: float | None = None
    unit: str = ""  # of `speed`: samples/s, tokens/s/device, it/s …
    tokens_per_second: float | None = None
    lr: float | None = None
    epoch: float | None = None
    grad_norm: float | None = None
    line_time: int | None = None  # the time in the line, taken as UTC; what a log tool put before it is better
    per_epoch: bool = False
    conclusive: bool = True
    """False for a bare progress bar, which data preparation prints too: it counts only beside something better."""


class Format(Struct, frozen=True):
    """How one trainer prints progress. `marker` "" is for patterns that hold no literal: they are tried on every line."""

    name: str
    marker: str
    read: Callable[[str], Reading | None]


_NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity)"
_WHEN = r"(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)"


def _number(text: str | None) -> float | None:
    return None if text is None else float(text.replace(",", ""))


def _whole(text: str | None) -> int | None:
    value = _number(text)
    return int(value) if value is not None and math.isfinite(value) else None


def _reading(
    name: str, said: Mapping[str, str | None], *, unit: str = "", per_epoch: bool = False, conclusive: bool = True
) -> Reading:
    """A reading of named groups."""
    when = said.get("when")
    speed = _number(said.get("speed"))
    return Reading(
        format=name,
        step=_whole(said.get("step")),
        total=_whole(said.get("total")),
        loss=_number(said.get("loss")),
        speed=speed,
        unit=(said.get("unit") or unit) if speed is not None else "",
        tokens_per_second=_number(said.get("tokens_per_second")),
        lr=_number(said.get("lr")),
        epoch=_number(said.get("epoch")),
        grad_norm=_number(said.get("grad_norm")),
        line_time=parse_rfc3339(when) if when else None,
        per_epoch=per_epoch,
        conclusive=conclusive,
    )


def _by_pattern(name: str, marker: str, pattern: str, *, unit: str = "", per_epoch: bool = False) -> Format:
    """A format that one regular expression takes apart; `@` in it stands for a number."""
    whole = pattern.replace("@", _NUMBER)

    def read(text: str) -> Reading | None:
        found = re.search(whole, text)  # compiled when a line may be of this format: most jobs print one, all would take long
        return _reading(name, found.groupdict(), unit=unit, per_epoch=per_epoch) if found else None

    return Format(name, marker, read)


_PAIR = rf"'(\w+)': '?({_NUMBER})'?"


def _hugging_face(text: str) -> Reading | None:
    """`{'loss': 2.1, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': 0.1}`; transformers 5 puts the numbers in quotes."""
    said = dict(re.findall(_PAIR, text[text.index("'loss'") - 1 :])) if "{'loss'" in text else {}
    if "loss" not in said or not said.keys() & {"epoch", "learning_rate"}:
        return None
    return _reading("hugging-face", said | {"lr": said.get("learning_rate")})


_MEGATRON = rf"(?:\[{_WHEN}[^\]]*\] )?iteration\s+(?P<step>\d+)/\s*(?P<total>\d+) \|(?P<rest>.*)"
_MEGATRON_PAIR = rf"\s([a-z][\w ()-]*?):?\s+({_NUMBER}) \|"


def _megatron(text: str) -> Reading | None:
    """Megatron-LM (megatron/training/training.py `training_log`), printed by the last rank; speed is from batch and time."""
    if not (found := re.search(_MEGATRON, text)):
        return None
    said = {name.strip(): value for name, value in re.findall(_MEGATRON_PAIR, found["rest"])}
    elapsed, batch = _number(said.get("elapsed time per iteration (ms)")), _number(said.get("global batch size"))
    speed = f"{batch * 1000 / elapsed}" if elapsed and batch else None
    more = {"loss": said.get("lm loss"), "lr": said.get("learning rate"), "grad_norm": said.get("grad norm"), "speed": speed}
    return _reading("megatron", found.groupdict() | more, unit="samples/s")


_BAR = (
    rf"(?P<what>[^|\r]*?)\s*\d+%\|[^|]*\| (?P<step>\d+)/(?P<total>\d+) "
    rf"\[[^\]<]*<[^\],]*, *(?P<rate>{_NUMBER}|\?)(?P<per>it/s|s/it)(?P<rest>[^\]]*)"
)
_UP = "\x1b[A"
_NESTED = r"[^\r\n]*\x1b\[A"
"""A bar below another one (tqdm `position`, such as evaluation's within training): after it the cursor goes up again."""
_BAR_LOSS = rf"\b(?:train_|train/)?loss(?:_step)?=(?P<loss>{_NUMBER})"
_BAR_EPOCH = r"(?:Training )?[Ee]poch:? \[?(\d+)"


def _bar(text: str) -> Reading | None:
    """A tqdm bar: Lightning's and others' (`Epoch 0: … train_loss=0.5`), or a nameless one, as transformers' Trainer draws."""
    for part in reversed(text.split("\r")):
        if found := re.search(_BAR, part):
            break
    else:
        return None
    what = found["what"].rpartition("]:")[2].strip(" :")
    epoch, loss = re.match(_BAR_EPOCH, what), re.search(_BAR_LOSS, found["rest"])
    if what and not epoch and not (loss and what.lower().startswith(("train", "step"))):
        return None  # Map, Loading checkpoint shards, Downloading …
    rate = _number(found["rate"]) if found["rate"] != "?" else None
    speed = 1 / rate if rate and found["per"] == "s/it" else rate
    said = {"step": found["step"], "total": found["total"], "speed": None if speed is None else f"{speed}"}
    said |= {"epoch": epoch[1] if epoch else None, "loss": loss["loss"] if loss else None}
    return _reading("tqdm", said, unit="it/s", per_epoch=epoch is not None, conclusive=loss is not None)


KFJOB = "kfjob"
"""Our own trainer, as a name for `ObserveConfig.trainer`: it prints the reference's line, and others (`milestones`)."""

FORMATS: tuple[Format, ...] = (
    # ours, and the reference sample's (aws-samples/awsome-distributed-training, FSDP train.py: also without time and file)
    _by_pattern(
        "reference",
        "oss",
        rf"(?:{_WHEN} .*?)?\bBatch (?P<step>\d+) Loss: (?P<loss>@), Speed: (?P<speed>@) samples/sec(?:.*?, lr: (?P<lr>@))?",
        unit="samples/s",
    ),
    # meta-llama/llama-recipes train_utils.py: the bar's description
    _by_pattern(
        "llama-recipes",
        "oss",
        r"Training Epoch: (?P<epoch>\d+)(?:/\d+)?, (?:step|batch) (?P<step>\d+)/(?P<total>\d+) completed \(loss: (?P<loss>@)"
        r"(?!.*Training Epoch: )",
        per_epoch=True,
    ),
    Format("hugging-face", "oss", _hugging_face),
    # pytorch/torchtitan components/metrics.py `log`; its validation line begins `validate step:`
    _by_pattern(
        "torchtitan",
        "oss",
        rf"(?:{_WHEN}.*?)?(?<!validate )\bstep:\s*(?P<step>\d+)\s+loss:\s+(?P<loss>@)\s+"
        r"(?:grad_norm:\s+(?P<grad_norm>@)\s+)?memory:.*?\btps:\s*(?P<speed>@)",
        unit="tokens/s/device",
    ),
    # karpathy/nanochat base_train.py, and build-nanogpt before it
    _by_pattern(
        "nanochat",
        "oss",
        r"\bstep\s+(?P<step>\d+)(?:/(?P<total>\d+))?(?: \([\d.]+%\))? \| loss: (?P<loss>@) \|(?:.*?\blr:? (?P<lr>@) \|)?"
        r".*?\btok/sec: (?P<speed>@)",
        unit="tokens/s",
    ),
    # karpathy/nanoGPT train.py
    _by_pattern("nanogpt", "oss", r"\biter (?P<step>\d+): loss (?P<loss>@), time @ ?m?s"),
    Format("megatron", "oss", _megatron),
    # microsoft/DeepSpeed runtime/engine.py `_report_progress` and utils/timer.py `ThroughputTimer.stop`
    _by_pattern("deepspeed", "step=", rf"(?:\[{_WHEN}\].*?)?\bstep=(?P<step>\d+), skipped=\d+, lr=\[(?P<lr>@)"),
    _by_pattern(
        "deepspeed",
        "step=",
        rf"(?:\[{_WHEN}\].*?)?\bepoch=(?P<epoch>\d+)/micro_step=\d+/global_step=(?P<step>\d+), "
        r"RunningAvgSamplesPerSec=@, CurrSamplesPerSec=(?P<speed>@)",
        unit="samples/s",
    ),
    # lightning/pytorch/callbacks/progress/rich_progress.py, which Lightning takes by itself where rich is installed
    _by_pattern(
        "lightning",
        "oss",
        r"\bEpoch (?P<epoch>\d+)/\d+\s+[━╸╺ ]*[━╸╺]\s*(?P<step>\d+)/(?P<total>\d+)\s.*?(?:(?P<speed>@)it/s\s.*?)?"
        r"\b(?:train_)?loss(?:_step)?: (?P<loss>@)",
        unit="it/s",
        per_epoch=True,
    ),
    Format("tqdm", "%|", _bar),
)


def custom(pattern: str) -> Format:
    """A caller's own line: a regular expression with named groups (`kfjob.spec.progress`).

    Raises:
        SpecError: it is no regular expression, or its groups are not those.
    """
    if fault := check_pattern(pattern):
        raise SpecError([Problem(title=fault.title, path="progress", detail=fault.detail, hint=fault.hint)])
    compiled = re.compile(pattern)

    def read(text: str) -> Reading | None:
        found = compiled.search(text)
        try:
            return _reading("custom", found.groupdict()) if found else None
        except ValueError:  # the group matched something that is no number
            return None

    return Format("custom", "", read)


class ProgressReader(Struct, frozen=True):
    """The formats that one job's lines are tried with, in order."""

    formats: tuple[Format, ...]
    markers: tuple[str, ...]  # a line without any of them is no progress line; empty: every line has to be tried

    def read(self, text: str) -> Reading | None:
        """What the line says, if it is a progress line."""
        if self.markers and not any(marker in text for marker in self.markers):
            return None
        if _UP in text:
            text = re.sub(_NESTED, "", text)
        plain, stamped = clean_line(text)
        for form in self.formats:
            if form.marker in plain and (reading := form.read(plain)):
                return reading if stamped is None else replace(reading, line_time=stamped)
        return None


@lru_cache(maxsize=64)
def reader(trainer: str = "", pattern: str | None = None) -> ProgressReader:
    """The reader for one trainer's format (for "" or a name that is not known: all), and before it for a caller's pattern."""
    name = "reference" if trainer == KFJOB else trainer
    formats = tuple(form for form in FORMATS if form.name == name) or FORMATS
    if pattern is not None:
        formats = (custom(pattern), *formats)
    markers = dict.fromkeys(form.marker for form in formats)
    return ProgressReader(formats, () if "" in markers else tuple(markers))
