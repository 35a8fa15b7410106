"""Lines of kfjob's trainer other than progress: start, step metrics, skipped steps, checkpoints, evaluation and outcome.

kfjob/trainer/metrics.py defines their format. It cannot be imported here; tests/unit/joblog/test_milestones.py checks
that both agree.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from msgspec import Struct, ValidationError, convert

from kfjob.base.parsing import parse_json
from kfjob.base.patterns import Pattern
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_rfc3339

MARKER = ".py:"
"""Part of every line of the trainer: `2026-11-21 07:10:48 I [train.py:18] …`."""
MARKER_BYTES = MARKER.encode()


class Start(Struct, frozen=True, kw_only=True):
    """The first line of a run."""

    model: str  # name of the model
    parameters: int  # number of parameters
    strategy: str  # how the model is distributed
    world_size: int  # number of processes
    global_batch: int  # samples of one optimiser step
    total_steps: int  # steps of the whole run


class Resume(Struct, frozen=True, kw_only=True):
    """The checkpoint that a run starts from; `name` is None without a checkpoint."""

    name: str | None  # name of the checkpoint; None for a run from step 0
    path: str | None  # its folder or address


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A complete checkpoint."""

    name: str  # name of the checkpoint
    path: str  # its folder or address
    seconds: float  # time that saving it took


class Evaluation(Struct, frozen=True, kw_only=True):
    """The loss on the validation slice."""

    step: int  # step of the evaluation
    loss: float  # mean loss
    perplexity: float  # exponential of the loss


class StepMetrics(Struct, frozen=True, kw_only=True):
    """The line after a progress line. None means an older image or an unknown device."""

    step: int
    tokens_per_second: float
    grad_norm: float
    memory: float  # GiB
    tokens_per_second_per_device: float | None = None
    mfu: float | None = None  # between 0 and 1


class SkippedStep(Struct, frozen=True, kw_only=True):
    """A step whose gradient was not applied; every rank prints the line."""

    step: int
    reason: str


class Rollback(Struct, frozen=True, kw_only=True):
    """A return to a checkpoint at this step; every rank prints the line."""

    step: int
    name: str
    reason: str


class Trace(Struct, frozen=True, kw_only=True):
    """A trace file that the profiler wrote."""

    path: str


class Startup(Struct, frozen=True, kw_only=True):
    """Seconds from process start to the first step, in total and per part."""

    seconds: float
    parts: tuple[tuple[str, float], ...]


class DamagedCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint that cannot be used."""

    name: str
    reason: str


class DataMismatch(Struct, frozen=True, kw_only=True):
    """A checkpoint that was trained on other data."""

    name: str
    reason: str


class TrainerOutcome(Struct, frozen=True, kw_only=True):
    """How the run ended: `finished`, `stopped` or `failed`."""

    outcome: str  # `finished`, `stopped` or `failed`
    step: int | None  # last step
    loss: float | None  # last loss
    checkpoint: str | None  # last checkpoint
    reason: str | None  # the reason in words


Setback = SkippedStep | Rollback
"""A step that did not count."""

Milestone = (
    Start | Resume | Checkpoint | Evaluation | StepMetrics | Setback | Trace | Startup | DamagedCheckpoint | DataMismatch
    | TrainerOutcome
)  # fmt: skip

_COUNT, _NUMBER = r"\d{1,18}", r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)"
_LINE = Pattern(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [DIWEC] \[\w+\.py:\d+\] "
    r"((?:Start|Startup|Resume|Checkpoint|Evaluation|Step|Trace|Data|Outcome) .*)$"
)
_PATTERNS: tuple[tuple[type[Milestone], Pattern], ...] = tuple(
    (kind, Pattern(pattern.replace("<n>", _COUNT).replace("<x>", _NUMBER)))
    for kind, pattern in (
        (
            Start,
            (
                r"Start (?P<model>.+) with (?P<parameters><n>) parameters, strategy (?P<strategy>.+), "
                r"world size (?P<world_size><n>), global batch (?P<global_batch><n>) samples, (?P<total_steps><n>) steps"
            ),
        ),
        (Resume, r"Resume (?:none$|(?P<name>\S+) (?P<path>.+))"),
        (Checkpoint, r"Checkpoint (?P<name>\S+) in (?P<seconds><x>) s (?P<path>.+)"),
        (DamagedCheckpoint, r"Checkpoint (?P<name>\S+) is damaged: (?P<reason>.*)"),
        (Evaluation, r"Evaluation step (?P<step><n>) loss (?P<loss><x>), perplexity (?P<perplexity><x>)"),
        (
            StepMetrics,
            (
                r"Step (?P<step><n>) tokens/s: (?P<tokens_per_second><x>), grad norm: (?P<grad_norm><x>), "
                r"peak memory: (?P<memory><x>) GiB(?:, tokens/s/device: (?P<tokens_per_second_per_device><x>))?"
                r"(?:, MFU: (?P<mfu><x>) %)?"
            ),
        ),
        (SkippedStep, r"Step (?P<step><n>) skipped: (?P<reason>.*)"),
        (Rollback, r"Step (?P<step><n>) rolled back to (?P<name>\S+): (?P<reason>.*)"),
        (Startup, r"Startup (?P<seconds><x>) s: (?P<parts>.+)"),
        (Trace, r"Trace (?P<path>.+)"),
        (DataMismatch, r"Data differs from what (?P<name>\S+) was trained on: (?P<reason>.*)"),
        (
            TrainerOutcome,
            (
                r"Outcome (?P<outcome>\w+) step (?:none|(?P<step><n>)) loss (?:none|(?P<loss><x>)) "
                r"checkpoint (?:none|(?P<checkpoint>.+?))(?: reason (?P<reason>\".*\"))?$"
            ),
        ),
    )
)
"""The pattern of each kind of message; its groups are the fields."""
_PART = Pattern(rf"([^,]+?) ({_NUMBER})(?:, |$)")
_NO_TRACE = "not written"


def parse_milestone(text: str) -> tuple[Milestone, int | None] | None:
    """Return the milestone in the line and the time that the trainer printed, None if the line has no milestone."""
    return _parse_plain(clean_line(text)[0]) if MARKER in text else None


@lru_cache(maxsize=1)  # the progress reader asks for a line first, and then the view
def _parse_plain(plain: str) -> tuple[Milestone, int | None] | None:
    if not (match := _LINE.search(plain)):
        return None
    milestone = _parse_message(match[2])
    return (milestone, parse_rfc3339(match[1])) if milestone else None


def _parse_message(message: str) -> Milestone | None:
    for kind, pattern in _PATTERNS:
        if (match := pattern.match(message)) and not (kind is Trace and match["path"].startswith(_NO_TRACE)):
            try:
                return convert(_read_fields(kind, match.groupdict()), kind, strict=False)
            except ValidationError:  # a number that is too large
                return None
    return None


def _read_fields(kind: type[Milestone], groups: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of which the text is not the value."""
    if kind is Startup:
        return groups | {"parts": [(part[1], part[2]) for part in _PART.find_all(groups["parts"])]}
    if kind is StepMetrics and groups["mfu"] is not None:
        return groups | {"mfu": float(groups["mfu"]) / 100}
    if kind is TrainerOutcome and groups["reason"] is not None:
        return groups | {"reason": _unquote(groups["reason"])}
    return groups


def _unquote(text: str) -> str:
    """Return the text in JSON quotes; the line may be cut, or another program may have printed it."""
    try:
        return str(parse_json(text))
    except ValueError:
        return text.strip('"')
