"""The literals by which a search finds lines with figures, and the names of the vocabulary that it does not find."""

from __future__ import annotations

from kfjob.observe.vocabulary import LOSS_PARTS, RATES

MAIN_MARKERS = (
    "loss", "Loss", "LOSS", "step", "Step", "STEP", "poch", "EPOC", "iter", "Iter", "pdate", "batch", "Batch", "it/s", "s/it",
    "/sec", "per_s", "per s", "es/s", "peed", "ghpu", "Cost", "piso", "learn", "rmse", "kimg", "raini", "erlust", "perte",
    "perd",
)  # fmt: skip
"""A log with figures of training has lines with one of these, or with a name in `RARE_MARKERS`.

A search for at most 32 literals of at least four bytes reads 32 bytes at once. With 64 literals it takes 1.5 times as
long, with more or shorter ones 3 to 10 times.
"""
MORE_MARKERS = (
    "ITER", "%|█", "%|##", "%|  ", "ens/s", " lr ", " lr:", " lr-", " lr=", "/lr=", '"lr"', "'lr'", "_lr ", "_lr=", "_lr:",
    " LR ", " LR:", " LR=", "/LR ", "ntropy", "Up. ", " fps", "VALI", "VAL ", "alid", "pass: ", "SPS:", "cost", "ound ",
    "otal",
)  # fmt: skip
"""In a log with a line of figures, lines with these may hold figures of the same step."""
FOREIGN_MARKERS = (
    "отер", "шаг ", "Шаг ", "шаг:", "Шаг:", "шаг=", "похи", "поха", "терац", "лосс", "шибк", "ℒ", "损失", "損失", "步数",
    "步骤", "轮次", " 轮", "轮 ", "迭代", "エポ", "ステ", "イテ", "손실", "에폭", "에포", "스텝", "rdida", "étap", "térat",
    "érdi", "poca", "poque",
)  # fmt: skip
"""Lines with figures in other languages; a log of plain ASCII has only those of `MAIN_MARKERS`."""
FIRST_MARKERS = ("lr:", "lr=", "lr ")
"""A line with a figure of training may begin with one of these."""


def _mark_rare_names() -> tuple[str, ...]:
    """Return the losses and rates without a main literal, in each form of their letters and before each separator."""
    names = [name for name in sorted(LOSS_PARTS | RATES) if not any(marker in name for marker in MAIN_MARKERS)]
    forms = dict.fromkeys(form for name in names for form in (name, name.upper(), name.capitalize()))
    rates = ("tok/s", "img/s", "imgs/s", "Tok/s", "TOK/S")
    letters = tuple(f" {letter}{after}" for letter in "Ll" for after in "0123456789:= ")
    return (*(f"{form}{separator}" for form in (*forms, *rates) for separator in " :=\"'\t|(/]"), *letters)


RARE_MARKERS = _mark_rare_names()
"""The names of losses and rates that few programs print without one of `MAIN_MARKERS`, as in `[it 12] nll 2.93`.

The search for them takes three times as long, so the prefilter searches the beginning of a log; it goes on where a line there
has figures.
"""
