"""Templates: a template stands for the lines of one layout.

It counts as progress once its lines count up and their loss changes. Then the figures in its lines become readings.
"""

from __future__ import annotations

import math
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from kfjob.joblog.lines.line_text import to_count
from kfjob.joblog.lines.meanings import Phase, Quantity, has_owner, is_plain_epoch
from kfjob.joblog.lines.vocabulary import ANY_LOSS, CLEAR_COUNT, FRAMES, SPARE_COUNT, STEP_TIME, SUM_OF_LOSSES, WEAK_COUNT
from kfjob.joblog.progress.figures.line_figures import DERIVED_SPEED, UNNAMED, Counter, Figures
from kfjob.joblog.progress.reading import FormatName, Reading

MAX_TEMPLATES = 32
"""Layouts of progress lines per container; the least recently seen one is dropped."""
MAX_SAMPLES = 6
"""First lines to keep of a layout. The reader reads them again once the layout counts."""
MAX_EXAMPLE = 160
"""Characters of the example of a layout."""
MIN_LINES, MIN_WEAK_LINES, MIN_EVEN_STEPS = 2, 3, 3
"""`MIN_LINES` lines with a known loss and step confirm a template; weaker names and blocks need `MIN_WEAK_LINES`. A
counter without a known name needs `MIN_EVEN_STEPS` from line to line."""

Key = tuple[object, ...]


class Sample(Struct, frozen=True, kw_only=True):
    """The figures of one line, or of several lines of one step, with the position of the line."""

    figures: Figures
    time: int | None
    number: int
    text: str
    block: int = -1  # number of the line that began the block; -1: the line stands alone


class CounterChoice(Struct, frozen=True):
    """What counts in the lines of a template."""

    name: str  # of the counter
    quantity: Quantity | None
    swapped: bool = False  # the second number of `0/100` counts
    loss_name: str = ""  # the loss that changes, where the first one of equal losses does not


class LineTemplate(Struct, frozen=True, kw_only=True):
    """Lines of one layout."""

    example: str
    lines: int = 0
    primary_lines: int = 0  # lines of the primary template before the last line of this one
    streak: int = 0  # lines of this template since the primary one's last line
    samples: tuple[Sample, ...] = ()  # empty after the confirmation
    last: Sample | None = None
    choice: CounterChoice | None = None  # None until the template counts
    fields: frozenset[str] = frozenset()

    @property
    def confirmed(self) -> bool:
        """Whether the template counts as progress."""
        return self.choice is not None

    def with_sample(self, sample: Sample, *, primary_lines: int) -> LineTemplate:
        """Return the template after one more line; a line of the same block replaces the sample before it."""
        repeats = self.last is not None and sample.block >= 0 and sample.block == self.last.block
        samples = self.samples
        if not self.confirmed:
            samples = (*(samples[:-1] if repeats else samples), sample)[-MAX_SAMPLES:]
        streak = self.streak + (not repeats) if primary_lines == self.primary_lines else 1
        return replace(
            self, lines=self.lines + (not repeats), samples=samples, last=sample, primary_lines=primary_lines, streak=streak
        )

    def with_choice(self, choice: CounterChoice) -> LineTemplate:
        """Return the template that counts; its first lines are read again, so it needs them no more."""
        return replace(self, choice=choice, samples=())


def make_key(figures: Figures, *, joined: bool) -> Key:
    """Return what lines of one template share: the names of the counters and of the loss, and not the epoch beside a bar."""
    counters = tuple((counter.quantity, counter.name) for counter in figures.counters if counter.priority < WEAK_COUNT)
    if joined:
        return ("block", *counters[:1])
    counters = counters[:1] if figures.is_bar else counters
    return (figures.is_bar, figures.is_epoch_bar, counters, figures.loss_name, is_count_only(figures))


PERCENT = "%"


def choose_counter(samples: tuple[Sample, ...]) -> CounterChoice | None:
    """Return the best counter that grows in the samples; None if none does."""
    names: dict[str, Counter] = {}
    for counter in samples[-1].figures.counters:
        names.setdefault(counter.name, counter)
    has_loss = samples[-1].figures.loss is not None
    ordered = sorted(
        names.values(),
        key=lambda item: (has_loss and item.priority >= WEAK_COUNT, item.quantity is Quantity.EPOCH, item.priority),
    )
    for counter in ordered:
        values = [find_counter(sample.figures, counter.name) for sample in samples]
        known = [item for item in values if item is not None]
        grows = _grows if counter.priority < SPARE_COUNT else _grows_evenly
        if grows([item.value for item in known]):
            return CounterChoice(counter.name, counter.quantity)
        totals = [item.total for item in known if item.total is not None]
        if len(totals) == len(known) and len({item.value for item in known}) == 1 and _grows(totals):
            return CounterChoice(counter.name, counter.quantity, swapped=True)
    percents = [sample.figures.percent for sample in samples if sample.figures.percent is not None]
    has_counter = samples[-1].figures.loss_priority < SUM_OF_LOSSES or any(sample.figures.counters for sample in samples)
    if len(samples) <= MIN_EVEN_STEPS and any(counter.priority == SPARE_COUNT for counter in ordered):
        return None  # it may yet grow evenly
    return CounterChoice(PERCENT, None) if has_counter and len(percents) == len(samples) and _grows(percents) else None


def find_counter(figures: Figures, name: str) -> Counter | None:
    """Return the counter of this name."""
    return next((counter for counter in figures.counters if counter.name == name), None)


def _grows(values: list[float]) -> bool:
    """Return whether the values count up; they may begin again once."""
    steps = [after - before for before, after in pairwise(values)]
    return sum(step > 0 for step in steps) > sum(step < 0 for step in steps)


def _grows_evenly(values: list[float]) -> bool:
    """Return whether the values grow by the same number each time, apart from the first time."""
    steps = [after - before for before, after in pairwise(values)]
    return len(steps) >= MIN_EVEN_STEPS and min(steps) > 0 and len({*steps[1:]}) == 1


def find_choice(template: LineTemplate) -> CounterChoice | None:
    """Return the counter if the lines so far are training progress."""
    samples = template.samples
    if len(samples) < MIN_LINES:
        return _find_sole_counter(samples[-1])
    choice = choose_counter(samples)
    if choice is None:
        return None
    figures = samples[-1].figures
    distinct = len({_position(sample.figures, choice) for sample in samples})
    losses = [sample.figures.loss for sample in samples if sample.figures.loss is not None]
    if len(set(losses)) == 1 and (name := _find_changing_loss(samples)):
        choice = replace(choice, loss_name=name)
        losses = [dict(sample.figures.other_losses).get(name, math.nan) for sample in samples]
    if len(losses) >= MIN_LINES:
        return choice if _confirms_loss(samples, losses, choice, distinct) else None
    if not figures.is_bar and is_count_only(figures):
        shows = _shows_training(samples, choice) or (figures.lr is not None and _counts_steps(figures, choice))
        names_rank = figures.rank is not None and choice.quantity is Quantity.EPOCH  # a process of the job counts
        return choice if distinct >= (MIN_LINES if names_rank else MIN_WEAK_LINES) and shows else None
    has_speed = sum(_shows_speed(sample.figures) for sample in samples) >= MIN_WEAK_LINES
    is_video = {counter.name for counter in figures.counters} <= FRAMES and not figures.has_reward
    counts = choice.quantity is not None and not choice.swapped and not is_video
    if figures.is_bar and counts and figures.speed is not None:
        return choice if distinct >= MIN_LINES else None
    return choice if has_speed and counts and distinct >= MIN_WEAK_LINES else None


def _find_sole_counter(sample: Sample) -> CounterChoice | None:
    """Return the counter of a line that shows training by itself: the only one, beside a loss and a speed or an lr.

    Of two numbers such as `2/100` and of one without a name nobody knows what they count, unless an epoch stands beside them.
    """
    figures = sample.figures
    epochs = [item for item in figures.counters if item.quantity is Quantity.EPOCH and item.priority == 0]
    steps = [item for item in figures.counters if item.quantity is Quantity.STEP and item.priority < WEAK_COUNT]
    counters = steps or epochs
    has_spare = any(counter.priority == SPARE_COUNT for counter in figures.counters)
    if len(counters) != 1 or has_spare or sample.block >= 0 or figures.loss_priority >= SUM_OF_LOSSES:
        return None
    has_total = counters[0].total is not None
    is_clear = figures.is_bar or (bool(epochs) if has_total else counters[0].has_name)
    has_rate = figures.speed is not None or figures.lr is not None
    return CounterChoice(counters[0].name, counters[0].quantity) if is_clear and has_rate else None


def _shows_speed(figures: Figures) -> bool:
    """Return whether the line has the speed of training; a benchmark prints the time of a step, too."""
    is_step_time = figures.speed_priority >= DERIVED_SPEED + STEP_TIME
    is_training = figures.phase is Phase.TRAINING or figures.evaluation_loss is not None
    return figures.speed is not None and (not is_step_time or is_training)


def _counts_steps(figures: Figures, choice: CounterChoice) -> bool:
    """Return whether a clear name counts steps; a plural, such as `steps`, may be a setting."""
    counter = find_counter(figures, choice.name)
    is_step = counter is not None and counter.quantity is Quantity.STEP and counter.priority < CLEAR_COUNT
    return is_step and not choice.swapped and not choice.name.endswith("s")


def _find_changing_loss(samples: tuple[Sample, ...]) -> str:
    """Return the first of the other losses that changes; "" if none does."""
    for name, value in samples[-1].figures.other_losses:
        if any(dict(sample.figures.other_losses).get(name, value) != value for sample in samples):
            return name
    return ""


def is_count_only(figures: Figures) -> bool:
    """Return whether the line has neither a loss nor a speed."""
    return figures.loss is None and figures.speed is None


def _shows_training(samples: tuple[Sample, ...], choice: CounterChoice) -> bool:
    """Return whether lines without loss and speed show training: they count epochs, or another figure changes with the step."""
    counter = find_counter(samples[-1].figures, choice.name)
    if counter is None or choice.swapped:
        figures = samples[-1].figures
        return counter is None and figures.phase is Phase.TRAINING and figures.counts(Quantity.EPOCH)  # `Train Epoch: 3 [10%]`
    metrics = {metric for sample in samples if (metric := sample.figures.metric) is not None}
    if counter.priority >= CLEAR_COUNT and not (counter.total and samples[-1].figures.counts(Quantity.EPOCH)):
        is_episode = any(word.startswith("episode") for word in counter.name.split())
        is_round = "round" in counter.name.split() and not all(metric.is_integer() for metric in metrics)
        is_batch = counter.priority < WEAK_COUNT and samples[-1].figures.phase is Phase.TRAINING
        has_reward = all(sample.figures.has_reward for sample in samples)
        return len(metrics) >= MIN_LINES and (is_episode or is_round or is_batch or has_reward)
    is_epoch = counter.quantity is Quantity.EPOCH and is_plain_epoch(counter.name)
    return (is_epoch and not has_owner(samples[-1].figures.words)) or len(metrics) >= MIN_LINES


def _position(figures: Figures, choice: CounterChoice) -> tuple[float | None, ...]:
    counter = find_counter(figures, choice.name)
    return (figures.percent,) if counter is None else (counter.value, counter.total if choice.swapped else None)


def _confirms_loss(samples: tuple[Sample, ...], losses: list[float], choice: CounterChoice, distinct: int) -> bool:
    figures = samples[-1].figures
    counter = find_counter(figures, choice.name)
    if counter is not None and counter.priority == SPARE_COUNT and all(before <= after for before, after in pairwise(losses)):
        return False  # a loss falls or hovers
    has_name = figures.loss_priority < SUM_OF_LOSSES or (figures.is_bar and figures.loss_priority <= ANY_LOSS)
    is_clear = has_name and counter is not None and samples[-1].block < 0
    if distinct < (MIN_LINES if is_clear else MIN_WEAK_LINES):
        return False
    finite = {loss for loss in losses if math.isfinite(loss)}
    broken = len(finite) < len(losses)
    return len(finite) >= MIN_LINES or (is_clear and broken and distinct >= MIN_WEAK_LINES)


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


def make_reading(choice: CounterChoice, figures: Figures, example: str) -> Reading:
    """Return the values in one line of a template that counts; `example` is another of its lines."""
    step, total, epoch, epochs = _read_counters(choice, figures)
    return Reading(
        format=FormatName.GENERAL,
        step=to_count(step),
        total=to_count(figures.total if total is None and step is not None else total),
        loss=dict(figures.other_losses).get(choice.loss_name) if choice.loss_name else figures.loss,
        speed=figures.speed,
        unit=figures.unit if figures.speed is not None else "",
        lr=figures.lr,
        epoch=epoch,
        epochs=to_count(epochs or figures.epochs) or None,
        grad_norm=figures.grad_norm,
        evaluation_loss=figures.evaluation_loss,
        rank=figures.rank,
        template=example,
        is_bar=figures.is_bar,
        per_epoch=figures.is_bar and epoch is not None and not figures.is_epoch_bar,
    )


def _read_counters(choice: CounterChoice, figures: Figures) -> tuple[float | None, float | None, float | None, float | None]:
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
    known = (item for item in steps if item.name != UNNAMED or item.value == item.total or not is_count_only(figures))
    done = next((item for item in known if item.total and item.priority < WEAK_COUNT), None)
    return (done.value, done.total, epoch, epochs) if done else (None, None, epoch, epochs)  # `1875/1875` in each epoch
