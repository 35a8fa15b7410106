"""What a name means: of two names for the same figure the one with the lower priority wins.

A name is a sequence of lower-case words: `train/grad_norm` and `Train Grad-Norm` are the same.
"""

from __future__ import annotations

import re
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

from kfjob.joblog.lines.vocabulary import (
    ADVERSARY,
    ANY_LOSS,
    CLEAR_COUNT,
    COUNT_EXCLUDED,
    COUNT_FILLERS,
    DATA_WORDS,
    DEVICES,
    DONE_WORDS,
    EPOCH_TOTALS,
    EPOCHS,
    ERRORS,
    EVALUATION_WORDS,
    FILLERS,
    FRAMES,
    GRADIENT_NORMS,
    GRADIENT_WORDS,
    GROUPS_OF_RANKS,
    LEARNING_WORDS,
    LOSS_EXCLUDED,
    LOSS_PART,
    LOSS_PARTS,
    LOSS_WORDS,
    LOSSES,
    LR_EXCLUDED,
    LR_NAMES,
    MEAN_WORDS,
    METRICS,
    NETWORKS,
    NO_STEP_UNITS,
    OWNER_WORDS,
    PLACE_FILLERS,
    PLAIN_EPOCHS,
    PLAIN_LOSS,
    PREPARATION_WORDS,
    RATE_NOUNS,
    RATE_UNITS,
    RATE_WORDS,
    RATES,
    REWARDS,
    SECOND_UNITS,
    SHORT_RATES,
    SHORT_TIMES,
    STEP_TIME,
    STEP_UNITS,
    STEPS,
    TIMES,
    TOTAL_WORDS,
    TOTALS,
    TRAINING_WORDS,
    TRANSLATIONS,
    UNITS_OF_RATES,
    translate,
)

_LR = re.compile(r"lr\d{0,3}")
_LOSS_PRIORITIES = {name: priority for priority, names in enumerate(LOSSES) for name in names}
_PARTS = re.compile(r"[^\W_]+")
_JOINED = re.compile(r"\w[-./]\w")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_INITIALS = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")


class Quantity(StrEnum):
    """What a figure counts or measures."""

    STEP = "step"
    EPOCH = "epoch"
    TOTAL = "total"
    EPOCHS = "epochs"
    LOSS = "loss"
    LR = "lr"
    SPEED = "speed"
    SECONDS = "seconds per step"
    GRAD_NORM = "grad_norm"
    RANK = "rank"


class Phase(StrEnum):
    """What the program does when it prints a figure; NONE if the name does not say it."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    NONE = ""


class Clarity(IntEnum):
    """How clearly a name means its figure, where the vocabulary has no order of its own; the clearest comes first."""

    EXACT = 0  # `lr`, `train loss`, `ms/it`: nothing else has this name
    SAID_IN_WORDS = 1  # `loss at step 100`, `lr of group 1`: the figure, and more


class SpeedName(IntEnum):
    """What the name of a speed says of its unit; the one that says most comes first."""

    WITH_UNIT = 1  # `samples/s`: what is counted
    RATE = 2  # `throughput`, `tps`: the name of a rate
    PART = 3  # `tokens/s/gpu`, `tps of rank 0`: the speed of one device, or a name with other words


class Meaning(NamedTuple):
    """The meaning of a name."""

    quantity: Quantity
    priority: int
    phase: Phase = Phase.NONE
    unit: str = ""  # of a speed


def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name; `CrossEntropyLoss` has three, and `L.r` is one."""
    if "." in name and _INITIALS.fullmatch(name):
        name = name.replace(".", "").lower()
    words = tuple([part.lower() for word in _PARTS.findall(name) for part in _CAMEL.split(word)])
    return words if name.isascii() and not TRANSLATIONS.keys() & words else translate(words)


@lru_cache(maxsize=4096)
def find_meaning(words: tuple[str, ...]) -> Meaning | None:
    """Return what a name means; None for a name that is not in the vocabulary."""
    phase = find_phase(words)
    rest = tuple(word for word in words if word not in FILLERS and word not in EVALUATION_WORDS and word not in TRAINING_WORDS)
    if rest[-1:] == ("value",):
        rest = rest[:-1]
    if not rest:
        return None
    for find in (_find_loss_count, _find_grad_norm, _find_loss, _find_lr, _find_speed, _find_count):
        if meaning := find(words, rest):
            return meaning._replace(phase=phase)
    return None


def is_count(words: tuple[str, ...]) -> bool:
    """Return whether the name counts steps or epochs."""
    meaning = find_meaning(words)
    return meaning is not None and meaning.quantity in {Quantity.STEP, Quantity.EPOCH}


def may_count(words: tuple[str, ...]) -> bool:
    """Return whether a name that is not in the vocabulary may be that of a counter, as `Processing 200 of 1000: loss 2.3`."""
    is_other = any(word in TIMES or word in COUNT_EXCLUDED - {"num"} for word in words)
    return not is_other and not is_metric(words)


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text that may name its phase: the parts of a name such as `resnet-test` do not."""
    parts = [(part, split_name(part)) for part in text.split()]
    return tuple(
        word
        for part, words in parts
        for word in words
        if len(words) == 1 or not _JOINED.search(part) or find_meaning(words) is not None or is_metric(words)
    )


def is_metric(words: tuple[str, ...]) -> bool:
    """Return whether the name is that of a figure of a model, other than its loss."""
    return any(word in METRICS for word in words)


_BESIDE_EPOCHS = PLAIN_EPOCHS | FILLERS | TRAINING_WORDS | TIMES
"""Words that change nothing of an epoch: `Time for epoch 3 is 12.1 s`."""


def is_plain_epoch(name: str) -> bool:
    """Return whether the name says nothing but that it counts epochs; `epochs` is a setting, and a leader has epochs too."""
    return _BESIDE_EPOCHS.issuperset(name.split())


def has_owner(words: tuple[str, ...]) -> bool:
    """Return whether the words say what an epoch belongs to, as in `epoch 3 of the validator set`."""
    return any(word in OWNER_WORDS for word in words)


def is_reward(words: tuple[str, ...]) -> bool:
    """Return whether the name is that of a reward, which reinforcement learning prints in place of a loss."""
    return any(word in REWARDS for word in words)


def find_phase(words: tuple[str, ...] | list[str]) -> Phase:
    """Return whether the words speak of training or of evaluation."""
    if any(word in TRAINING_WORDS for word in words):
        return Phase.TRAINING
    return Phase.EVALUATION if any(word in EVALUATION_WORDS for word in words) else Phase.NONE


def is_preparation(words: tuple[str, ...] | list[str]) -> bool:
    """Return whether a word names work that is not training, such as the preparation of data."""
    return any(word.startswith(PREPARATION_WORDS) for word in words)


def is_data_preparation(words: tuple[str, ...]) -> bool:
    """Return whether a word names the preparation of data."""
    return any(word.startswith(DATA_WORDS) for word in words)


def _find_loss_count(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    """Return the count in `loss at step 100`."""
    if len(rest) == 1 or not (words[-2] in COUNT_FILLERS or PLACE_FILLERS & set(words)):
        return None
    if words[-2] == "in" and is_count(words[:-2]):
        return None  # `step_in_epoch`
    for quantity, groups in ((Quantity.STEP, STEPS), (Quantity.EPOCH, EPOCHS)):
        if any(rest[-1] in names for names in groups[:CLEAR_COUNT]):
            return Meaning(quantity, Clarity.SAID_IN_WORDS)
    return None


def _find_loss(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    is_lost = words[-3:-1] == ("loss", "of") and words[-1] in METRICS  # `loss of precision`
    if is_lost or any(word in LOSS_EXCLUDED for word in rest) or rest[-2:] == ("loss", "function"):
        return None
    if any(word in LOSS_WORDS or word.endswith("loss") for word in rest):
        name = " ".join(word for word in words if word not in FILLERS)
        plain = " ".join(rest)
        if plain == "loss":
            return Meaning(Quantity.LOSS, Clarity.EXACT if find_phase(words) is Phase.TRAINING else PLAIN_LOSS)
        priorities = [TOTAL_WORDS[word] for word in rest if word in TOTAL_WORDS]
        if priorities and ADVERSARY.isdisjoint(rest):
            return Meaning(Quantity.LOSS, min(priorities))
        return Meaning(Quantity.LOSS, _LOSS_PRIORITIES.get(plain, _LOSS_PRIORITIES.get(name, ANY_LOSS)))
    if (
        rest[-2:] == ("cross", "entropy")
        or rest[-1] in LOSS_PARTS
        or rest[0] in LOSS_PARTS
        or (rest[0] in NETWORKS and _find_priority([*rest[1:]], STEPS) is None)  # `D_step` counts
        or (rest[-1] in ERRORS and find_phase(words) is not Phase.NONE)
    ):
        return Meaning(Quantity.LOSS, LOSS_PART)
    return None


def _find_lr(_: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    joined = " ".join(rest)
    if not (
        any(_LR.fullmatch(word) for word in rest)
        or (RATE_WORDS & set(rest) and LEARNING_WORDS & set(rest))
        or "learningrate" in rest
    ):
        return None
    if not LR_EXCLUDED.isdisjoint(rest):
        return None
    return Meaning(Quantity.LR, Clarity.EXACT if joined in LR_NAMES else Clarity.SAID_IN_WORDS)


def _find_grad_norm(_: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    has_gradient = not GRADIENT_WORDS.isdisjoint(rest)
    if (has_gradient and "norm" in rest) or rest[-1] in GRADIENT_NORMS or "".join(rest) in GRADIENT_NORMS or rest == ("grad",):
        return Meaning(Quantity.GRAD_NORM, Clarity.EXACT)
    return None


def _find_speed(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    nouns = tuple(word for word in rest if word != "per")
    if not nouns or TIMES & set(nouns) or NO_STEP_UNITS & set(nouns[:-1]):
        return _find_step_time(nouns)
    *before, last = nouns
    if last in SECOND_UNITS and before:
        return Meaning(Quantity.SPEED, SpeedName.WITH_UNIT, unit=_format_rate(before[-1]))
    if last in DEVICES and before[1:] and before[-1] in SECOND_UNITS:
        return Meaning(Quantity.SPEED, SpeedName.PART, unit=f"{_format_rate(before[-2])}/{last}")
    if last in RATES or nouns[0] in SHORT_RATES:
        unit = UNITS_OF_RATES.get(last if last in RATES else nouns[0], "")
        return Meaning(Quantity.SPEED, SpeedName.RATE if last in RATES else SpeedName.PART, unit=unit)
    if [nouns[0]] == before and nouns[0] in SHORT_TIMES and last in STEP_UNITS and words[0] != "per":
        return Meaning(Quantity.SECONDS, Clarity.EXACT, unit=nouns[0])
    return _find_step_time(nouns)


def _find_step_time(nouns: tuple[str, ...]) -> Meaning | None:
    """Return the meaning of `time/batch`, `step_time_ms` and `step_avg`; the last one has its unit after the number."""
    named = [noun for noun in nouns if noun not in MEAN_WORDS]
    unit = named.pop() if named[1:] and named[-1] in SHORT_TIMES else ""
    steps = [noun for noun in named if noun != "time"]
    if len(steps) != 1 or steps[0] not in STEP_UNITS or len(named) > len(steps) + 1:
        return None
    has_time = len(named) > len(steps)
    is_mean = len(nouns) > len(named) + bool(unit)
    return Meaning(Quantity.SECONDS, STEP_TIME, unit=unit or ("s" if has_time else "")) if has_time or is_mean else None


def _format_rate(noun: str) -> str:
    return f"{RATE_NOUNS.get(noun, noun)}/s"


def _find_count(words: tuple[str, ...], _: tuple[str, ...]) -> Meaning | None:
    if words[-1:] == ("rank",) and not GROUPS_OF_RANKS & set(words):
        return Meaning(Quantity.RANK, Clarity.EXACT)
    if "in" in words[1:] and is_count(words[: words.index("in")]):
        words = words[: words.index("in")]
    plain = [word for word in words if word not in FILLERS]
    while len(plain) > 1 and (plain[-1] in TRAINING_WORDS or plain[-1] in EVALUATION_WORDS or plain[-1] in DONE_WORDS):
        plain.pop()  # `Iter(train)`, `samples seen`
    joined = " ".join(plain)
    if joined in TOTALS:
        return Meaning(Quantity.TOTAL, Clarity.EXACT)
    if joined in EPOCH_TOTALS:
        return Meaning(Quantity.EPOCHS, Clarity.EXACT)
    if (priority := _rate_count(plain, EPOCHS)) is not None:
        return Meaning(Quantity.EPOCH, priority)
    if (priority := _rate_count(plain, STEPS)) is not None:
        return Meaning(Quantity.STEP, priority)
    return None


def _rate_count(words: list[str], names: tuple[tuple[str, ...], ...]) -> int | None:
    """Return the priority of a counter; None for a name such as `steps per epoch` or `warmup steps`."""
    priority = _find_priority(words, names)
    if priority is None or "per" in words:
        return None
    rest = words[:-2] if " ".join(words[-2:]) in names[priority] else words[:-1]
    excluded = COUNT_EXCLUDED
    if (priority == 0 and len(words) > 1) or words[-1] in FRAMES:  # `total_train_updates`, `total num frames`
        excluded -= {"total", "num"}
    is_other = any(word in excluded for word in rest) or is_preparation([word for word in rest if word not in DONE_WORDS])
    return None if is_other else priority


def _find_priority(words: list[str], names: tuple[tuple[str, ...], ...]) -> int | None:
    if not words:
        return None
    two, last = " ".join(words[-2:]), words[-1]
    ends = (two, last, last.removeprefix("n"))  # `nupdates`
    return next((priority for priority, group in enumerate(names) if any(end in group for end in ends)), None)


def parse_unit(unit: str) -> Meaning | None:
    """Return what a unit after a number means: `samples/s` is a speed, `ms/it` a time per step."""
    noun, slash, divisor = unit.lower().partition("/")
    if noun in RATE_UNITS and not slash:
        return Meaning(Quantity.SPEED, SpeedName.RATE, unit=UNITS_OF_RATES.get(noun, noun))
    if not slash or not divisor:
        return None
    if noun in NO_STEP_UNITS:
        return None
    divisor, _, device = divisor.partition("/")
    if divisor in SECOND_UNITS:
        unit = _format_rate(noun or "samples") + (f"/{device}" if device else "")
        return Meaning(Quantity.SPEED, SpeedName.PART if device else SpeedName.WITH_UNIT, unit=unit)
    if noun in SHORT_TIMES and divisor in STEP_UNITS:
        return Meaning(Quantity.SECONDS, Clarity.EXACT, unit=noun)
    return None


def counts_steps(rate: str) -> bool:
    """Return whether the unit of a speed counts steps: `it/s`, `steps/s`, `batches/s`."""
    noun, _, divisor = rate.lower().partition("/")
    return divisor in SECOND_UNITS and (noun in STEPS[1] or noun in STEPS[2])


def is_other_rate(unit: str) -> bool:
    """Return whether the unit is that of a rate which is not that of training, such as `GB/s`."""
    noun, slash, _ = unit.lower().partition("/")
    return bool(slash) and noun in NO_STEP_UNITS


def seconds_in(unit: str) -> float:
    """Return the seconds in a unit of time, 0 for another unit."""
    return SHORT_TIMES.get(unit.lower(), 0.0)
