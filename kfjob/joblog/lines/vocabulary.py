"""The words of training: names of steps, epochs, losses, speeds and other figures, and the words that name other work.

Every set and pattern of such words comes from these tables. `docs/reference/progress.md` is generated from them. They
are English, Chinese and Russian.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

TRAINING_WORDS = frozenset({"train", "training", "tr"})
EVALUATION_WORDS = frozenset((
    "val", "valid", "validation", "validate", "eval", "evaluation", "evaluate", "evaluating", "test",
    "testing", "dev", "cv", "inference", "evaluator",
))  # fmt: skip
PHASE_NAMES = ("mode", "split")
"""Names whose value is a phase, as in `split=val`."""
DATA_WORDS = (
    "map", "tokeniz", "download", "split", "filter", "pack", "group", "process", "cach", "convert", "extract",
    "build", "shuffl", "index", "encod", "prepar", "comput", "generat",
)  # fmt: skip
"""Words with these beginnings name the preparation of data."""
PREPARATION_WORDS = (
    *DATA_WORDS, "load", "shard", "fetch", "captur", "compil", "upload", "sav", "read", "collect", "install", "loglikelihood",
    "wait", "connect", "retry", "attempt", "warmup", "profil", "quantiz", "merg", "search", "sampl", "writ",
    "resolv", "creat", "calibrat", "predict", "decod", "check", "verif", "trial",
)  # fmt: skip
"""Words with these beginnings name work that is not training."""

ANNOUNCEMENT = re.compile(r"(?i)\b(?:start|begin|run|resum|enter|launch)\w{0,5}\s+(?:the\s+)?(?:train|fit)|^\W*training\W*$")
"""It matches a line that says that training begins, such as `***** Running training *****`."""

STEPS: tuple[tuple[str, ...], ...] = (
    ("global step", "optimizer step", "train step", "num updates",
     "train updates", "training step", "training steps"),
    ("step", "steps", "iteration", "iterations", "iter", "iters", "it", "itr", "update", "updates", "upd"),
    ("batch", "batches", "minibatch", "batch index", "mb", "up"),
    ("tick", "round", "episode", "episodes", "frame", "frames", "samples", "kimg", "examples", "tokens", "timesteps",
     "env steps", "idx", "i"),
)  # fmt: skip
EPOCHS: tuple[tuple[str, ...], ...] = (("epoch", "epochs", "ep"), ("pass", "generation"))
EPOCH_WORDS = frozenset(EPOCHS[0])
PLAIN_EPOCHS = frozenset({"epoch", "ep", "#"})
"""Names that count epochs and are no setting, as `epochs` may be."""
OWNER_WORDS = frozenset({"of", "for", "from", "by"})
"""Words before what an epoch belongs to, as in `epoch 3 of the validator set`."""
MESSAGE_COUNTERS = ("step", "iter", "iteration", "epoch")
"""A line that begins with one of these and a number begins a message of its own."""
FRAMES = frozenset({"frame", "frames"})
"""An encoder of videos counts frames alone; a trainer that does so prints a reward, a loss or an epoch too."""
COUNTER_WORDS = frozenset(
    name for names in (*STEPS[1:3], EPOCHS[0]) for name in names if name.isalpha() and len(name) > len("up")
)
"""Words that say that a bar counts steps of training."""
SHORT_NAMES: Mapping[str, str] = {"e": "epoch", "#": "step", "it": "step", "i": "step"}
"""Names of columns in a table."""
COUNT_UNITS = frozenset((*STEPS[1], "batch", "batches", *EPOCHS[0], "samples", "tokens", "tok", "kimg"))
"""Units that are the name of a counter: `10 steps`."""
_OF_RUNS = ("total", "max", "num")
_RUN_COUNTS = ("steps", "iterations", "iters", "batches", "updates")
_RUN_NAMES = (f"{word} {count}" for word in _OF_RUNS for count in _RUN_COUNTS)
TOTALS = (*(name for name in _RUN_NAMES if name not in STEPS[0]), "total", "num training steps")
EPOCH_TOTALS = (*(f"{word} epochs" for word in _OF_RUNS), "n epochs", "num train epochs")
COUNT_EXCLUDED = frozenset((
    "per", "skipped", "max", "min", "total", "warmup", "accumulation", "log", "logging", "save", "saving", "eval", "every",
    "interval", "size", "time", "timing", "nan", "skip", "num", "best", "last", "restart", "left", "remaining",
    "elapsed", "avg", "average", "mean", "example", "examples", "sub", "inner", "val", "valid", "validation", "test", "dev",
    "checkpoint", "local", "micro", "layer",
))  # fmt: skip
LOSS_EXCLUDED = frozenset((
    "scale", "scaler", "scaling", "weight", "weights", "fn", "type", "ratio", "coef", "lambda", "packet",
    "packets", "best", "lowest", "tokens", "time", "improvement", "improved", "previous", "prev", "target", "stop",
    "patience", "count", "num", "clip", "factor", "threshold", "name", "mode", "std", "var",
    "variance", "min", "probability", "rate", "percent",
))  # fmt: skip
LOSSES: tuple[tuple[str, ...], ...] = (
    ("train loss",),
    ("total loss",),
    ("loss",),
    ("lm loss",),
    ("step loss", "batch loss", "loss step", "minibatch loss"),
    ("average loss", "avg loss", "mean loss", "running loss", "epoch loss", "loss epoch",
     "loss avg", "loss mean", "loss value"),
)  # fmt: skip
TOTAL_WORDS = {**dict.fromkeys(("total", "overall", "combined", "joint"), 1), **dict.fromkeys(("all", "sum", "full"), 3)}
"""A loss with one of these words in its name is a sum of losses with this priority; the word alone may name such a sum."""
PLAIN_LOSS = 2
ADVERSARY = frozenset({"d", "disc", "discriminator", "critic"})
CLEAR_COUNT, WEAK_COUNT, SPARE_COUNT = 2, 3, 4
"""A counter's name is clear below the first number. From the second on, it may count something else, such as samples. A spare
counter has no known name: it counts if it grows evenly."""
SUM_OF_LOSSES, ANY_LOSS, LOSS_PART = range(len(LOSSES), len(LOSSES) + 3)
"""Priorities after those of all names in `LOSSES`: a sum without the word `loss`, any other loss, and a part of a loss."""
LOSS_WORDS = frozenset({"loss", "losses"})
"""Either is a loss as a name, and in the name of a dictionary that contains the value."""
LOSS_PARTS = frozenset((
    "cost", "objective", "nll", "elbo", "bce", "xent", "mse", "rmse", "ce", "gan", "cycle",
    "recon", "rec", "bpb", "bpc", "learn",
))  # fmt: skip
NETWORKS = frozenset({"l", "d", "g"})
"""Letters before the name of a loss, or alone: the loss of the discriminator, of the generator, and `L`."""
ERRORS = frozenset({"l1", "l2"})
"""In the name of a figure of training or evaluation these are its loss; other programs name a penalty so."""
REWARDS = frozenset({"reward", "rewards", "rew", "return"})
ERROR_METRICS = frozenset({"error", "err"})
METRICS = REWARDS | ERROR_METRICS | frozenset((
    "accuracy", "acc", "ppl", "perplexity", "psnr", "ssim", "map", "miou", "iou",
    "f1", "bleu", "wer", "cer", "score", "auc", "top1", "acc1", "kl", "entropy", "dice", "recall",
    "precision", "mae",
))  # fmt: skip
"""With a step, these figures show training even where a program prints no loss."""
DONE_WORDS = frozenset({"seen", "processed", "completed", "consumed", "done", "executed", "played"})
LEARNING_WORDS = frozenset({"learning", "learn"})
LEARNING_RATE = "learning rate"
LR_NAMES = ("lr", LEARNING_RATE)
"""Names of the learning rate itself; other names with its words may be one of several."""
LR_EXCLUDED = frozenset({"base", "initial", "max", "min", "peak", "init", "warmup", "decay", "scale"})
GRADIENT_WORDS = frozenset({"grad", "gradient", "g"})
GRADIENT_NORMS = frozenset({"gnorm", "gn"})
RATE_WORDS = frozenset({"rate", "speed"})
RATES = frozenset({"throughput", "tps", "wps", "ips", "fps", "sps", "ups", "speed", "tgs"})
UNITS_OF_RATES: Mapping[str, str] = {
    "tgs": "tokens/s/gpu", "wps": "words/s", "ups": "updates/s", "fps": "frames/s",
}  # fmt: skip
"""The units of rates by their names. The others have none: `sps` counts samples or steps, `ips` images, items or iterations."""
SHORT_RATES = frozenset({"fps", "sps", "tps"})
SHORT_RATE_UNITS = ("tok/s", "img/s", "imgs/s")
"""Units of rates that are their names, as in `tok/s 3267`."""
RATE_NOUNS: Mapping[str, str] = {"tok": "tokens", "its": "it", "iter": "it", "iters": "it", "imgs": "images"}
"""What kfjob writes for the nouns of rates."""
RATE_UNITS = frozenset({"tps", "wps", "ips", "fps", "sps", "ups", "tgs"})
"""Rates that stand after their number, as in `25 fps`."""
TIMES = frozenset({"time", "timing", "elapsed", "eta"})
DEVICES = frozenset({"gpu", "device", "rank"})
GROUPS_OF_RANKS = frozenset({"local", "tensor", "pipeline", "node", "group"})
"""A rank with one of these words is not the rank in the job."""
_BYTES = frozenset({"b", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib"})
NO_STEP_UNITS = _BYTES | frozenset((
    "req", "reqs", "requests", "inferences", "ops", "flops",
    "gflops", "tflop", "tflops", "gbits",
))  # fmt: skip
"""A rate in these units is not that of training."""
SHORT_TIMES = {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "msec": 1e-3, "us": 1e-6}
SECOND_UNITS = frozenset(unit for unit, seconds in SHORT_TIMES.items() if seconds == 1)
MEASURES = (_BYTES - {"b"}) | {"percent"}
"""Units that may stand after a number and a space."""
UNITS = MEASURES | COUNT_UNITS | SHORT_TIMES.keys() | {
    "ns", "min", "mins", "h", "hr", "hrs", "d", "x", "w", "tflops", "px",
}  # fmt: skip
"""Units that may follow a number at once."""
DATA_UNITS = _BYTES | {"examples", "example", "files", "file", "docs", "rows", "shards"}
"""A bar in these units counts data."""
STEP_UNITS = frozenset({"it", "iter", "iteration", "step", "batch", "tick", "update", "b"})
MEAN_WORDS = frozenset({"avg", "average", "mean", "elapsed"})
STEP_TIME = 1
"""Rank of the time of a step by its name, as in `step_time=0.3`: benchmarks print it too."""
PLACE_FILLERS = frozenset({"at", "after"})
COUNT_FILLERS = frozenset({"at", "after", "for", "in", "of"})
FILLERS = frozenset((
    "is", "was", "of", "at", "in", "for", "after", "the", "to", "and", "on", "by", "current", "curr", "cur",
))  # fmt: skip


_LANGUAGES: Mapping[str, str] = {
    "epoch": "轮 轮次 轮数 周期 эпоха эпохи эпоху",
    "step": "步 步数 步骤 шаг шага",
    "iteration": "迭代 迭代次数 итерация итерации",
    "batch": "批次 батч",
    "loss": "损失 损失值 потери потеря потерь лосс ошибка ℒ",
    "lr": "学习率",
    "speed": "速度 скорость",
    "learning": "обучения",
    "reward": "奖励 награда",
    "accuracy": "准确率 精度 точность",
    "average": "平均 средняя средний",
    "train": "训练 обучение",
    "test": "测试 тест",
    "eval": "评估 оценка",
    "validation": "验证 валидация валидации",
}

TRANSLATIONS: Mapping[str, str] = {word: english for english, words in _LANGUAGES.items() for word in words.split()}
"""English names by the words of other languages."""

_HAN = re.compile(r"[\u4e00-\u9fff]")
_PARTS = re.compile("|".join((*sorted(filter(_HAN.match, TRANSLATIONS), key=len, reverse=True), r"[^\W_]")))


def translate(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words in English; one Chinese word may consist of several, such as `平均损失`."""
    parts = (part for word in words for part in (_PARTS.findall(word) if _HAN.match(word) else (word,)))
    return tuple(TRANSLATIONS.get(part, part) for part in parts)
