"""This module turns figures of templates into readings, and limits what one template adds to another."""

from __future__ import annotations

from operator import attrgetter

from msgspec.structs import replace

from kfjob.joblog.lines.meanings import Quantity
from kfjob.joblog.lines.numbers import to_count
from kfjob.joblog.lines.vocabulary import WEAK_COUNT
from kfjob.joblog.progress.figures.line import Counter, Figures
from kfjob.joblog.progress.general.templates import Choice, find_counter
from kfjob.joblog.progress.reading import FormatName, Reading

WEAK = 0.5
"""Lines that only count have this quality: another pod with a loss takes precedence."""
_FIELDS = ("loss", "speed", "lr", "grad_norm", "step", "epoch")
_read_fields = attrgetter(*_FIELDS)


def known_fields(reading: Reading) -> frozenset[str]:
    """Return the names of the values that a reading has."""
    return frozenset([name for name, value in zip(_FIELDS, _read_fields(reading), strict=True) if value is not None])


def rate_fields(fields: frozenset[str]) -> float:
    """Return how much lines with these values say: the best template of a log counts its steps."""
    if "loss" in fields:
        return 4.0 if "step" in fields else 3.0 if "epoch" in fields else 2.5
    if not fields & {"speed", "lr"}:
        return WEAK
    return 2.0 if "step" in fields else 1.0


def limit_reading(reading: Reading, known: frozenset[str]) -> Reading | None:
    """Return the evaluation in a reading, and the values that the primary template never has; None if there are none."""
    values: dict[str, object] = {name: None for name in ("loss", "lr", "grad_norm", "epoch") if name in known}
    if "step" in known:
        values |= {"step": None, "total": None}
    if "speed" in known:
        values |= {"speed": None, "unit": ""}
    extra = replace(reading, extra=True, evaluation_step=reading.step, **values)
    return extra if known_fields(extra) or extra.evaluation_loss is not None else None


def bar_reading(figures: Figures) -> Reading:
    """Return the reading of a bar without a name and without values: any loop may print it."""
    counter = figures.counters[0]
    return Reading(
        format=FormatName.BAR,
        step=to_count(counter.value),
        total=to_count(counter.total),
        speed=figures.speed,
        unit=figures.unit if figures.speed is not None else "",
        conclusive=False,
        is_bar=True,
    )


def make_reading(choice: Choice, figures: Figures, example: str) -> Reading:
    """Return the values in one line of a template that counts; `example` is another of its lines."""
    step, total, epoch, epochs = _read_counters(choice, figures)
    return Reading(
        format=FormatName.GENERAL,
        step=to_count(step),
        total=to_count(figures.total if total is None and step is not None else total),
        loss=dict(figures.other_losses).get(choice.loss_name) if choice.loss_name else figures.loss,
        speed=figures.speed,
        unit=figures.unit if figures.speed is not None else "",
        duration=figures.duration if step is not None else None,
        is_difference=figures.is_difference,
        lr=figures.lr,
        epoch=epoch,
        epochs=to_count(epochs or figures.epochs) or None,
        grad_norm=figures.grad_norm,
        evaluation_loss=figures.evaluation_loss,
        rank=figures.rank,
        template=example,
        is_bar=figures.is_bar,
    )


def _read_counters(choice: Choice, figures: Figures) -> tuple[float | None, float | None, float | None, float | None]:
    """Return step, steps, epoch and epochs."""
    chosen = find_counter(figures, choice.name)
    others = [counter for counter in figures.counters if counter.quantity is Quantity.EPOCH and counter is not chosen]
    named = min(others, key=lambda counter: counter.priority, default=Counter(Quantity.EPOCH, 0, "", -1))
    epoch, epochs = (None, None) if named.value < 0 else (named.value, named.total)
    if chosen is not None and chosen.quantity is Quantity.STEP:
        if choice.swapped:  # `0/100` is epoch and step
            return chosen.total, None, chosen.value, None
        return chosen.value, chosen.total, epoch, epochs
    if chosen is not None:
        epoch, epochs = chosen.value, chosen.total
    steps = (item for item in figures.counters if item.quantity is Quantity.STEP)
    done = next((item for item in steps if item.total and item.priority < WEAK_COUNT), None)
    return (done.value, done.total, epoch, epochs) if done else (None, None, epoch, epochs)  # `1875/1875` in each epoch
