"""Lines of kfjob's trainer other than progress: start, step metrics, skipped steps, checkpoints, evaluation and outcome.

kfjob/trainer/metrics.py defines their format. It cannot be imported here; tests/unit/joblog/test_milestones.py checks
that both agree.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from kfjob.base.parsing import parse_json
from kfjob.base.patterns import Match, Pattern
from kfjob.joblog.lines.line_text import parse_number
from kfjob.joblog.lines.prefixes import clean_line
from kfjob.joblog.lines.timestamps import parse_rfc3339

MARKER = ".py:"
"""Part of every line of the trainer: `2026-11-21 07:10:48 I [train.py:18] …`."""
MARKER_BYTES = MARKER.encode()


class Start(Struct, frozen=True, kw_only=True):
    """The first line of a run."""

    model: str
    parameters: int
    strategy: str
    world_size: int
    global_batch: int  # samples
    total_steps: int


class Resume(Struct, frozen=True, kw_only=True):
    """The checkpoint that a run starts from; `name` is None without a checkpoint."""

    name: str | None
    path: str | None


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A complete checkpoint."""

    name: str
    path: str
    seconds: float


class Evaluation(Struct, frozen=True, kw_only=True):
    """The loss on the validation slice."""

    step: int
    loss: float
    perplexity: float


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

    outcome: str
    step: int | None
    loss: float | None
    checkpoint: str | None
    reason: str | None


Setback = SkippedStep | Rollback
"""A step that did not count."""

Milestone = (
    Start | Resume | Checkpoint | Evaluation | StepMetrics | Setback | Trace | Startup | DamagedCheckpoint | DataMismatch
    | TrainerOutcome
)  # fmt: skip

_NUMBER = r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)"
_LINE = Pattern(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [DIWEC] \[\w+\.py:\d+\] "
    r"((Start|Startup|Resume|Checkpoint|Evaluation|Step|Trace|Data|Outcome) .*)$"
)
_START = Pattern(
    r"Start (?P<model>.+) with (?P<parameters>\d{1,18}) parameters, strategy (?P<strategy>.+), "
    r"world size (?P<world_size>\d{1,18}), global batch (?P<global_batch>\d{1,18}) samples, (?P<total_steps>\d{1,18}) steps"
)
_CHECKPOINT = Pattern(rf"Checkpoint (\S+) in ({_NUMBER}) s (.+)")
_EVALUATION = Pattern(rf"Evaluation step (\d{{1,18}}) loss ({_NUMBER}), perplexity ({_NUMBER})")
_STEP_METRICS = Pattern(
    rf"Step (\d{{1,18}}) tokens/s: ({_NUMBER}), grad norm: ({_NUMBER}), peak memory: ({_NUMBER}) GiB"
    rf"(?:, tokens/s/device: ({_NUMBER}))?(?:, MFU: ({_NUMBER}) %)?"
)
_SKIPPED_STEP = Pattern(r"Step (\d{1,18}) skipped: (.*)")
_ROLLBACK = Pattern(r"Step (\d{1,18}) rolled back to (\S+): (.*)")
_TRACE = Pattern(r"Trace (.+)")
_STARTUP = Pattern(rf"Startup ({_NUMBER}) s: (.+)")
_PART = Pattern(rf"([^,]+?) ({_NUMBER})(?:, |$)")
_DAMAGED_CHECKPOINT = Pattern(r"Checkpoint (\S+) is damaged: (.*)")
_DATA_MISMATCH = Pattern(r"Data differs from what (\S+) was trained on: (.*)")
_OUTCOME = Pattern(rf"Outcome (\w+) step (none|\d{{1,18}}) loss (none|{_NUMBER}) checkpoint (.+?)(?: reason (\".*\"))?$")


def parse_milestone(text: str) -> tuple[Milestone, int | None] | None:
    """Return the milestone in the line and the time that the trainer printed, None if the line has no milestone."""
    return _parse_plain(clean_line(text)[0]) if MARKER in text else None


@lru_cache(maxsize=1)  # the progress reader asks for a line first, and then the view
def _parse_plain(plain: str) -> tuple[Milestone, int | None] | None:
    if not (match := _LINE.search(plain)):
        return None
    milestone = _parse_message(match[3], match[2])
    return (milestone, parse_rfc3339(match[1])) if milestone else None


def _parse_message(verb: str, message: str) -> Milestone | None:
    parsers = {
        "Start": _parse_start,
        "Resume": _parse_resume,
        "Checkpoint": _parse_checkpoint,
        "Evaluation": _parse_evaluation,
        "Step": _parse_step,
        "Startup": _parse_startup,
        "Trace": _parse_trace,
        "Data": _parse_data_mismatch,
        "Outcome": _parse_outcome,
    }
    return parsers[verb](message)


def _parse_start(message: str) -> Start | None:
    if not (match := _START.match(message)):
        return None
    numbers = {name: int(match[name]) for name in ("parameters", "world_size", "global_batch", "total_steps")}
    return Start(model=match["model"], strategy=match["strategy"], **numbers)


def _parse_resume(message: str) -> Resume:
    name, _, path = message.removeprefix("Resume ").partition(" ")
    return Resume(name=None, path=None) if name == "none" else Resume(name=name, path=path)


def _parse_checkpoint(message: str) -> Checkpoint | DamagedCheckpoint | None:
    if match := _DAMAGED_CHECKPOINT.match(message):
        return DamagedCheckpoint(name=match[1], reason=match[2])
    match = _CHECKPOINT.match(message)
    return Checkpoint(name=match[1], seconds=parse_number(match[2]), path=match[3]) if match else None


def _parse_evaluation(message: str) -> Evaluation | None:
    match = _EVALUATION.match(message)
    return Evaluation(step=int(match[1]), loss=parse_number(match[2]), perplexity=parse_number(match[3])) if match else None


def _parse_step(message: str) -> StepMetrics | Setback | None:
    if match := _STEP_METRICS.match(message):
        return _to_step_metrics(match)
    if match := _SKIPPED_STEP.match(message):
        return SkippedStep(step=int(match[1]), reason=match[2])
    if match := _ROLLBACK.match(message):
        return Rollback(step=int(match[1]), name=match[2], reason=match[3])
    return None


def _to_step_metrics(match: Match) -> StepMetrics:
    per_device, percent = match[5], match[6]
    return StepMetrics(
        step=int(match[1]),
        tokens_per_second=parse_number(match[2]),
        grad_norm=parse_number(match[3]),
        memory=parse_number(match[4]),
        tokens_per_second_per_device=None if per_device is None else parse_number(per_device),
        mfu=None if percent is None else parse_number(percent) / 100,
    )


def _parse_startup(message: str) -> Startup | None:
    if not (match := _STARTUP.match(message)):
        return None
    parts = tuple((part[1], parse_number(part[2])) for part in _PART.find_all(match[2]))
    return Startup(seconds=parse_number(match[1]), parts=parts)


def _parse_trace(message: str) -> Trace | None:
    match = _TRACE.match(message)
    return Trace(path=match[1]) if match and not match[1].startswith("not written") else None


def _parse_data_mismatch(message: str) -> DataMismatch | None:
    return DataMismatch(name=match[1], reason=match[2]) if (match := _DATA_MISMATCH.match(message)) else None


def _parse_outcome(message: str) -> TrainerOutcome | None:
    if not (match := _OUTCOME.match(message)):
        return None
    outcome, step, loss, checkpoint, reason = match.groups()
    return TrainerOutcome(
        outcome=outcome,
        step=None if step == "none" else int(step),
        loss=None if loss == "none" else parse_number(loss),
        checkpoint=None if checkpoint == "none" else checkpoint,
        reason=_unquote(reason) if reason else None,
    )


def _unquote(text: str) -> str:
    """Return the text in JSON quotes; the line may be cut, or another program may have printed it."""
    try:
        return str(parse_json(text))
    except ValueError:
        return text.strip('"')
