"""The names of figures and their priorities: of two names for the same figure the one with the lower number wins.

A name is a sequence of lower-case words: `train/grad_norm` and `Train Grad-Norm` are the same. `docs/reference/progress.md` is
generated from the tables here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from kfjob.observe.translations import TRANSLATIONS, translate


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


class Meaning(NamedTuple):
    """The meaning of a name."""

    quantity: Quantity
    priority: int
    phase: Phase = Phase.NONE
    unit: str = ""  # of a speed


TRAINING_WORDS = frozenset({"train", "training", "trn", "tr"})
EVALUATION_WORDS = frozenset((
    "val", "valid", "validation", "validate", "validating", "eval", "evaluation", "evaluate", "evaluating", "test",
    "testing", "dev", "cv", "heldout", "inference", "evaluator",
))  # fmt: skip
PREPARATION_WORDS = (
    "map", "tokeniz", "load", "download", "split", "shard", "filter", "pack", "group", "process", "preprocess",
    "fetch", "cach", "captur", "compil", "convert", "extract", "upload", "sav", "read", "build", "shuffl", "index", "encod",
    "collect", "install", "loglikelihood", "wait", "connect", "retry", "attempt", "warmup", "profil", "quantiz", "merg",
    "prepar", "comput", "search", "sampl", "writ", "copy", "import", "export", "resolv", "unpack", "creat", "calibrat",
    "predict", "generat", "scann", "pars", "decod", "check", "verif", "trial",
)  # fmt: skip
"""Words with these beginnings name the preparation of data, and other work that is not training."""

ANNOUNCEMENT = re.compile(r"(?i)\b(?:start|begin|run|resum|enter|launch)\w{0,5}\s+(?:the\s+)?(?:train|fit)|^\W*training\W*$")
"""It matches a line that says that training begins, such as `***** Running training *****`."""

STEPS: tuple[tuple[str, ...], ...] = (
    ("global step", "global steps", "globalstep", "optimizer step", "optimizer steps", "optimiser step", "train step",
     "num updates", "train updates", "training step", "training steps"),
    ("step", "steps", "iteration", "iterations", "iter", "iters", "it", "itr", "its", "update", "updates", "upd", "n iter",
     "niter"),
    ("batch", "batches", "minibatch", "mini batch", "batch idx", "batch index", "batch id", "mb", "up"),
    ("tick", "ticks", "round", "rounds", "episode", "episodes", "frame", "frames", "samples", "kimg", "examples",
     "sample count", "tokens", "timesteps", "env steps", "environment steps", "idx", "index", "i"),
)  # fmt: skip
EPOCHS: tuple[tuple[str, ...], ...] = (("epoch", "epochs", "ep"), ("pass", "generation"))
TOTALS = (
    "total steps", "max steps", "num steps", "total iterations", "max iterations", "num iterations", "total iters", "max iters",
    "num iters", "total batches", "num batches", "total", "steps total", "total updates", "max updates", "num training steps",
)  # fmt: skip
EPOCH_TOTALS = ("total epochs", "max epochs", "num epochs", "n epochs", "epochs total", "num train epochs")
_COUNT_EXCLUDED = frozenset((
    "per", "skipped", "max", "min", "total", "warmup", "accumulation", "log", "logging", "save", "saving", "eval", "every",
    "interval", "size", "time", "timing", "nan", "skip", "num", "best", "last", "restart", "patience", "left", "remaining",
    "elapsed", "avg", "average", "mean", "example", "examples", "sub", "inner", "val", "valid", "validation", "test", "dev",
    "checkpoint", "resume", "resumed", "local", "micro",
))  # fmt: skip
_LOSS_EXCLUDED = frozenset((
    "scale", "scaler", "scaling", "weight", "weights", "fn", "type", "ratio", "coef", "coefficient", "lambda", "packet",
    "packets", "best", "lowest", "tokens", "time", "improvement", "improved", "previous", "prev", "delta", "target", "stop",
    "patience", "count", "num", "clip", "spike", "factor", "threshold", "name", "mode", "hit", "change", "std", "var",
    "variance", "minimum", "min", "diff", "gap", "probability", "rate", "percent", "percentage",
))  # fmt: skip
_NO_LOSSES = frozenset({"gloss", "floss", "bloss"})
LOSSES: tuple[tuple[str, ...], ...] = (
    ("train loss",),
    ("total loss", "loss total", "overall loss", "combined loss", "joint loss"),
    ("loss",),
    ("lm loss", "loss all", "loss sum", "sum loss", "full loss"),
    ("step loss", "batch loss", "iter loss", "current loss", "reduced loss", "loss step", "minibatch loss"),
    ("average loss", "avg loss", "mean loss", "running loss", "epoch loss", "smoothed loss", "ema loss", "loss epoch",
     "loss avg", "loss mean", "loss value"),
)  # fmt: skip
_LOSS_PRIORITIES = {name: priority for priority, names in enumerate(LOSSES) for name in names}
TOTAL_WORDS = {**dict.fromkeys(("total", "overall", "combined", "joint"), 1), **dict.fromkeys(("all", "sum", "full"), 3)}
"""A loss with one of these words in its name is a sum of losses with this priority; the word alone may name such a sum."""
_PLAIN_LOSS = 2
_ADVERSARY = frozenset({"d", "disc", "discriminator", "critic", "adv", "adversarial"})
CLEAR_COUNT, WEAK_COUNT = 2, 3
"""A counter's name is clear below the first number. From the second on, it may count something else, such as samples."""
SUM_OF_LOSSES, ANY_LOSS, LOSS_PART = range(len(LOSSES), len(LOSSES) + 3)
"""Priorities after those of all names in `LOSSES`: a sum without the word `loss`, any other loss, and a part of a loss."""
LOSS_WORDS = frozenset({"loss", "losses"})
"""Either is a loss as a name, and in the name of a dictionary that contains the value."""
LOSS_PARTS = frozenset((
    "cost", "objective", "nll", "nelbo", "elbo", "bce", "xent", "mse", "rmse", "ce", "crossentropy", "kld", "gan", "cycle",
    "idt", "recon", "rec", "nce", "bpb", "bpc", "learn",
))  # fmt: skip
_ERRORS = frozenset({"l1", "l2"})
"""In the name of a figure of training or evaluation these are its loss; other programs name a penalty so."""
METRICS = frozenset((
    "accuracy", "acc", "reward", "rewards", "return", "returns", "ppl", "perplexity", "psnr", "ssim", "map", "miou", "iou",
    "f1", "bleu", "wer", "cer", "score", "auc", "top1", "acc1", "error", "err", "kl", "entropy", "dice", "recall",
    "precision", "mae",
))  # fmt: skip
"""With a step, these figures show training even where a program prints no loss."""
_DONE_WORDS = frozenset({"seen", "processed", "completed", "consumed", "done", "executed", "taken", "played"})
_LEARNING_WORDS = frozenset({"learning", "learn"})
_RATE_WORDS = frozenset({"rate", "speed"})
_REWARDS = frozenset({"reward", "rewards", "return", "returns"})
RATES = frozenset({"throughput", "tps", "wps", "ips", "fps", "sps", "ups", "qps", "speed", "tgs"})
_SHORT_RATES = frozenset({"fps", "sps", "tps"})
_RATE_UNITS = frozenset({"tps", "wps", "ips", "fps", "sps", "ups", "tgs"})
"""Rates that stand after their number, as in `25 fps`."""
TIMES = frozenset({"time", "timing", "elapsed", "eta"})
_DEVICES = frozenset({"gpu", "device", "rank"})
NO_STEP_UNITS = frozenset(
    {
        "b",
        "kb",
        "mb",
        "gb",
        "tb",
        "kib",
        "mib",
        "gib",
        "tib",
        "req",
        "reqs",
        "requests",
        "ops",
        "flop",
        "flops",
        "gflop",
        "gflops",
        "tflop",
        "tflops",
        "pflops",
        "bits",
        "kbits",
        "mbits",
        "gbits",
    }
)
"""A rate in these units is not that of training."""
_SECOND = frozenset({"s", "sec", "secs", "second", "seconds"})
_SHORT_TIMES = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6}
_STEP_UNITS = frozenset({"it", "iter", "iteration", "step", "batch", "tick", "update", "b"})
_MEAN_WORDS = frozenset({"avg", "average", "mean"})
STEP_TIME = 1
"""Rank of the time of a step by its name, as in `step_time=0.3`: benchmarks print it too."""
OF_WORDS = frozenset({"of", "von", "sur", "de", "di", "из"})
"""Words between a counter and its total."""
_PLACE_FILLERS = frozenset({"at", "after"})
_COUNT_FILLERS = frozenset({"at", "after", "for", "in", "of"})
FILLERS = frozenset((
    "is", "was", "of", "at", "in", "for", "after", "the", "to", "and", "on", "by", "current", "curr", "cur",
    "so", "far", "now",
))  # fmt: skip
_LR = re.compile(r"lr\d{0,3}")
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name; `CrossEntropyLoss` has three."""
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
    for find in (_find_loss_count, _find_loss, _find_lr, _find_grad_norm, _find_speed, _find_count):
        if meaning := find(words, rest):
            return meaning._replace(phase=phase)
    return None


def is_count(words: tuple[str, ...]) -> bool:
    """Return whether the name counts steps or epochs."""
    meaning = find_meaning(words)
    return meaning is not None and meaning.quantity in {Quantity.STEP, Quantity.EPOCH}


def is_metric(words: tuple[str, ...]) -> bool:
    """Return whether the name is that of a figure of a model, other than its loss."""
    return any(word in METRICS for word in words)


def is_plain_epoch(name: str) -> bool:
    """Return whether the name says nothing but that it counts epochs; `epochs` is a setting, and a leader has epochs too."""
    return all(word in {"epoch", "ep", "#"} or word in FILLERS or word in TRAINING_WORDS for word in name.split())


def has_owner(words: tuple[str, ...]) -> bool:
    """Return whether the words say what an epoch belongs to, as in `epoch 3 of the validator set`."""
    return any(word in {"of", "for", "from", "by"} for word in words)


def is_reward(words: tuple[str, ...]) -> bool:
    """Return whether the name is that of a reward, which reinforcement learning prints in place of a loss."""
    return any(word in _REWARDS for word in words)


def find_phase(words: tuple[str, ...] | list[str]) -> Phase:
    """Return whether the words speak of training or of evaluation."""
    if any(word in TRAINING_WORDS for word in words):
        return Phase.TRAINING
    return Phase.EVALUATION if any(word in EVALUATION_WORDS for word in words) else Phase.NONE


def is_preparation(words: tuple[str, ...] | list[str]) -> bool:
    """Return whether a word names the preparation of data."""
    return any(word.startswith(PREPARATION_WORDS) for word in words)


def _find_loss_count(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    """Return the count in `loss at step 100`."""
    if len(rest) == 1 or not (words[-2] in _COUNT_FILLERS or _PLACE_FILLERS & set(words)):
        return None
    if words[-2] == "in" and is_count(words[:-2]):
        return None  # `step_in_epoch`
    for quantity, groups in ((Quantity.STEP, STEPS), (Quantity.EPOCH, EPOCHS)):
        if any(rest[-1] in names for names in groups[:CLEAR_COUNT]):
            return Meaning(quantity, 1)
    return None


def _find_loss(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    if any(word in _LOSS_EXCLUDED for word in rest) or rest[-2:] == ("loss", "function"):
        return None
    if any(word in LOSS_WORDS or (word.endswith("loss") and word not in _NO_LOSSES) for word in rest):
        name = " ".join(word for word in words if word not in FILLERS)
        plain = " ".join(rest)
        if plain == "loss":
            return Meaning(Quantity.LOSS, 0 if find_phase(words) is Phase.TRAINING else _PLAIN_LOSS)
        priorities = [TOTAL_WORDS[word] for word in rest if word in TOTAL_WORDS]
        if priorities and _ADVERSARY.isdisjoint(rest):
            return Meaning(Quantity.LOSS, min(priorities))
        return Meaning(Quantity.LOSS, _LOSS_PRIORITIES.get(plain, _LOSS_PRIORITIES.get(name, ANY_LOSS)))
    if (
        rest[-2:] == ("cross", "entropy")
        or rest[-1] in LOSS_PARTS
        or rest[0] in LOSS_PARTS
        or (len(rest) > 1 and rest[0] in {"l", "d", "g"})
        or rest in {("d",), ("g",), ("l",)}
        or (rest[-1] in _ERRORS and find_phase(words) is not Phase.NONE)
    ):
        return Meaning(Quantity.LOSS, LOSS_PART)
    return None


def _find_lr(_: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    joined = " ".join(rest)
    if not (
        any(_LR.fullmatch(word) for word in rest)
        or (_RATE_WORDS & set(rest) and _LEARNING_WORDS & set(rest))
        or "learningrate" in rest
    ):
        return None
    if any(
        word in {"base", "initial", "max", "min", "peak", "init", "warmup", "decay", "multiplier", "scale"} for word in rest
    ):
        return None
    return Meaning(Quantity.LR, 0 if joined in {"lr", "learning rate"} else 1)


def _find_grad_norm(_: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    has_gradient = any(word in {"grad", "gradient", "gradients", "grads", "g"} for word in rest)
    if (has_gradient and "norm" in rest) or rest[-1] in {"gnorm", "gradnorm"} or rest == ("grad",):
        return Meaning(Quantity.GRAD_NORM, 0)
    return None


def _find_speed(words: tuple[str, ...], rest: tuple[str, ...]) -> Meaning | None:
    nouns = tuple(word for word in rest if word != "per")
    if not nouns or TIMES & set(nouns) or NO_STEP_UNITS & set(nouns[:-1]):
        return _find_step_time(nouns)
    *before, last = nouns
    if last in _SECOND and before:
        return Meaning(Quantity.SPEED, 1, unit=_format_rate(before[-1]))
    if last in _DEVICES and before[1:] and before[-1] in _SECOND:
        return Meaning(Quantity.SPEED, 3, unit=f"{_format_rate(before[-2])}/{last}")
    if last in RATES or nouns[0] in _SHORT_RATES:
        return Meaning(Quantity.SPEED, 2 if last in RATES else 3)
    if [nouns[0]] == before and nouns[0] in _SHORT_TIMES and last in _STEP_UNITS and words[0] != "per":
        return Meaning(Quantity.SECONDS, 0, unit=nouns[0])
    return _find_step_time(nouns)


def _find_step_time(nouns: tuple[str, ...]) -> Meaning | None:
    """Return the meaning of `time/batch`, `step_time_ms` and `step_avg`; the last one has its unit after the number."""
    named = [noun for noun in nouns if noun not in _MEAN_WORDS]
    unit = named.pop() if named[1:] and named[-1] in _SHORT_TIMES else ""
    steps = [noun for noun in named if noun != "time"]
    if len(steps) != 1 or steps[0] not in _STEP_UNITS or len(named) > len(steps) + 1:
        return None
    has_time = len(named) > len(steps)
    is_mean = len(nouns) > len(named) + bool(unit)
    return Meaning(Quantity.SECONDS, STEP_TIME, unit=unit or ("s" if has_time else "")) if has_time or is_mean else None


def _format_rate(noun: str) -> str:
    return f"{ {'tok': 'tokens', 'its': 'it', 'iter': 'it', 'iters': 'it', 'imgs': 'images'}.get(noun, noun) }/s"


def _find_count(words: tuple[str, ...], _: tuple[str, ...]) -> Meaning | None:
    if words[-1:] == ("rank",) and not {"local", "tensor", "pipeline", "node", "group"} & set(words):
        return Meaning(Quantity.RANK, 0)
    if "in" in words[1:] and is_count(words[: words.index("in")]):
        words = words[: words.index("in")]
    plain = [word for word in words if word not in FILLERS]
    while len(plain) > 1 and (plain[-1] in TRAINING_WORDS or plain[-1] in EVALUATION_WORDS or plain[-1] in _DONE_WORDS):
        plain.pop()  # `Iter(train)`, `samples seen`
    joined = " ".join(plain)
    if joined in TOTALS:
        return Meaning(Quantity.TOTAL, 0)
    if joined in EPOCH_TOTALS:
        return Meaning(Quantity.EPOCHS, 0)
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
    excluded = _COUNT_EXCLUDED - {"total"} if priority == 0 and len(words) > 1 else _COUNT_EXCLUDED  # `total_train_updates`
    is_other = any(word in excluded for word in rest) or is_preparation([word for word in rest if word not in _DONE_WORDS])
    return None if is_other else priority


def _find_priority(words: list[str], names: tuple[tuple[str, ...], ...]) -> int | None:
    if not words:
        return None
    two, last = " ".join(words[-2:]), words[-1]
    return next((priority for priority, group in enumerate(names) if two in group or last in group), None)


def parse_unit(unit: str) -> Meaning | None:
    """Return what a unit after a number means: `samples/s` is a speed, `ms/it` a time per step."""
    noun, slash, divisor = unit.lower().partition("/")
    if noun in _RATE_UNITS and not slash:
        return Meaning(Quantity.SPEED, 2, unit=noun)
    if not slash or not divisor:
        return None
    if noun in NO_STEP_UNITS:
        return None
    divisor, _, device = divisor.partition("/")
    if divisor in _SECOND:
        unit = _format_rate(noun or "samples") + (f"/{device}" if device else "")
        return Meaning(Quantity.SPEED, 3 if device else 1, unit=unit)
    if noun in _SHORT_TIMES and divisor in _STEP_UNITS:
        return Meaning(Quantity.SECONDS, 0, unit=noun)
    return None


def is_other_rate(unit: str) -> bool:
    """Return whether the unit is that of a rate which is not that of training, such as `GB/s`."""
    noun, slash, _ = unit.lower().partition("/")
    return bool(slash) and noun in NO_STEP_UNITS


def seconds_in(unit: str) -> float:
    """Return the seconds in a unit of time, 0 for another unit."""
    return _SHORT_TIMES.get(unit.lower(), 0.0)
