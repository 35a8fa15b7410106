"""The other lines of our trainer: start, figures, steps that did not count, checkpoints, evaluation, outcome.

Their forms are `kfjob/trainer/metrics.py`'s, which cannot be imported here; tests/unit/observe/test_milestones.py holds the two
equal.
"""

from __future__ import annotations

import json
import re

from msgspec import Struct

from kfjob.observe.lines import clean_line
from kfjob.observe.timestamps import parse_rfc3339

MARKER = ".py:"
"""In every line of the trainer: `2026-11-21 07:10:48 I [train.py:18] …`."""


class Start(Struct, frozen=True, kw_only=True):
    """The first line of a run."""

    model: str
    parameters: int
    strategy: str
    world_size: int
    global_batch: int  # samples
    total_steps: int


class Resume(Struct, frozen=True, kw_only=True):
    """Where the run begins: a checkpoint, or nowhere (`name` is None)."""

    name: str | None
    path: str | None


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint is complete."""

    name: str
    path: str
    seconds: float


class Evaluation(Struct, frozen=True, kw_only=True):
    """The loss on the validation slice."""

    step: int
    loss: float
    perplexity: float


class StepMetrics(Struct, frozen=True, kw_only=True):
    """The line after a progress line; `memory` in GiB, `mfu` a share. None: an older image, or a device that is not known."""

    step: int
    tokens_per_second: float
    grad_norm: float
    memory: float
    tokens_per_second_per_device: float | None = None
    mfu: float | None = None


class SkippedStep(Struct, frozen=True, kw_only=True):
    """A step whose gradient was not applied. Every rank says so."""

    step: int
    why: str


class Rollback(Struct, frozen=True, kw_only=True):
    """The run went back to a checkpoint at this step. Every rank says so."""

    step: int
    name: str
    why: str


class Trace(Struct, frozen=True, kw_only=True):
    """The profiler has written a file."""

    path: str


class Startup(Struct, frozen=True, kw_only=True):
    """From process start to the first step, in parts."""

    seconds: float
    parts: tuple[tuple[str, float], ...]


class DamagedCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint that cannot be used."""

    name: str
    why: str


class DataMismatch(Struct, frozen=True, kw_only=True):
    """The data is not that of the checkpoint."""

    name: str
    why: str


class TrainerOutcome(Struct, frozen=True, kw_only=True):
    """How the run ended: `finished`, `stopped` or `failed`."""

    outcome: str
    step: int | None
    loss: float | None
    checkpoint: str | None
    reason: str | None


Setback = SkippedStep | Rollback
Milestone = (
    Start
    | Resume
    | Checkpoint
    | Evaluation
    | StepMetrics
    | Setback
    | Trace
    | Startup
    | DamagedCheckpoint
    | DataMismatch
    | TrainerOutcome
)

# texts, which `re` compiles when a line may be of such a kind: only jobs of our own trainer have them
_N = r"[-+]?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)"
_LINE = (
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [DIWEC] \[\w+\.py:\d+\] "
    r"((Start|Startup|Resume|Checkpoint|Evaluation|Step|Trace|Data|Outcome) .*)$"
)
_START = (
    r"Start (?P<model>.+) with (?P<parameters>\d+) parameters, strategy (?P<strategy>.+), world size (?P<world_size>\d+), "
    r"global batch (?P<global_batch>\d+) samples, (?P<total_steps>\d+) steps"
)
_CHECKPOINT = rf"Checkpoint (\S+) in ({_N}) s (.+)"
_EVALUATION = rf"Evaluation step (\d+) loss ({_N}), perplexity ({_N})"
_FIGURES = (
    rf"Step (\d+) tokens/s: ({_N}), grad norm: ({_N}), peak memory: ({_N}) GiB"
    rf"(?:, tokens/s/device: ({_N}))?(?:, MFU: ({_N}) %)?"
)
_SKIPPED = r"Step (\d+) skipped: (.*)"
_ROLLED_BACK = r"Step (\d+) rolled back to (\S+): (.*)"
_TRACE = r"Trace (?!not written)(.+)"
_STARTUP = rf"Startup ({_N}) s: (.+)"
_PART = rf"([^,]+?) ({_N})(?:, |$)"
_DAMAGED = r"Checkpoint (\S+) is damaged: (.*)"
_DIFFERS = r"Data differs from what (\S+) was trained on: (.*)"
_OUTCOME = rf"Outcome (\w+) step (none|\d+) loss (none|{_N}) checkpoint (\S+)(?: reason (\".*\"))?$"


def parse_milestone(text: str) -> tuple[Milestone, int | None] | None:
    """The milestone that the line tells, and the time written in it."""
    if MARKER not in text:
        return None
    plain, _ = clean_line(text)
    if not (found := re.search(_LINE, plain)):
        return None
    milestone = _milestone(found[3], found[2])
    return (milestone, parse_rfc3339(found[1])) if milestone else None


def _milestone(verb: str, message: str) -> Milestone | None:
    read = {
        "Start": _start,
        "Resume": _resume,
        "Checkpoint": _checkpoint,
        "Evaluation": _evaluation,
        "Step": _step,
        "Startup": _startup,
        "Trace": _trace,
        "Data": _differs,
        "Outcome": _outcome,
    }
    return read[verb](message)


def _start(message: str) -> Start | None:
    if not (found := re.match(_START, message)):
        return None
    numbers = {name: int(found[name]) for name in ("parameters", "world_size", "global_batch", "total_steps")}
    return Start(model=found["model"], strategy=found["strategy"], **numbers)


def _resume(message: str) -> Resume:
    name, _, path = message.removeprefix("Resume ").partition(" ")
    return Resume(name=None, path=None) if name == "none" else Resume(name=name, path=path)


def _checkpoint(message: str) -> Checkpoint | DamagedCheckpoint | None:
    if found := re.match(_DAMAGED, message):
        return DamagedCheckpoint(name=found[1], why=found[2])
    found = re.match(_CHECKPOINT, message)
    return Checkpoint(name=found[1], seconds=float(found[2]), path=found[3]) if found else None


def _evaluation(message: str) -> Evaluation | None:
    found = re.match(_EVALUATION, message)
    return Evaluation(step=int(found[1]), loss=float(found[2]), perplexity=float(found[3])) if found else None


def _step(message: str) -> StepMetrics | Setback | None:
    if found := re.match(_FIGURES, message):
        return _figures(found)
    if found := re.match(_SKIPPED, message):
        return SkippedStep(step=int(found[1]), why=found[2])
    if found := re.match(_ROLLED_BACK, message):
        return Rollback(step=int(found[1]), name=found[2], why=found[3])
    return None


def _figures(found: re.Match[str]) -> StepMetrics:
    per_device, percent = found[5], found[6]
    return StepMetrics(
        step=int(found[1]),
        tokens_per_second=float(found[2]),
        grad_norm=float(found[3]),
        memory=float(found[4]),
        tokens_per_second_per_device=None if per_device is None else float(per_device),
        mfu=None if percent is None else float(percent) / 100,
    )


def _startup(message: str) -> Startup | None:
    if not (found := re.match(_STARTUP, message)):
        return None
    return Startup(seconds=float(found[1]), parts=tuple((name, float(part)) for name, part in re.findall(_PART, found[2])))


def _trace(message: str) -> Trace | None:
    return Trace(path=found[1]) if (found := re.match(_TRACE, message)) else None


def _differs(message: str) -> DataMismatch | None:
    return DataMismatch(name=found[1], why=found[2]) if (found := re.match(_DIFFERS, message)) else None


def _outcome(message: str) -> TrainerOutcome | None:
    if not (found := re.match(_OUTCOME, message)):
        return None
    outcome, step, loss, checkpoint, reason = found.groups()
    return TrainerOutcome(
        outcome=outcome,
        step=None if step == "none" else int(step),
        loss=None if loss == "none" else float(loss),
        checkpoint=None if checkpoint == "none" else checkpoint,
        reason=str(json.loads(reason)) if reason else None,
    )
