"""The state of the general reader of one log, and its transitions.

Each line with figures belongs to a template, alone or in a block: the figures of one step in several lines.
"""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.joblog.lines.meanings import Quantity
from kfjob.joblog.lines.vocabulary import CLEAR_COUNT, SUM_OF_LOSSES, TOTAL_WORDS, WEAK_COUNT
from kfjob.joblog.progress.figures.line_figures import MAX_OTHER_LOSSES, Counter, Figures
from kfjob.joblog.progress.figures.tables import TableHeader
from kfjob.joblog.progress.general.templates import (
    MAX_EXAMPLE,
    MAX_TEMPLATES,
    CounterChoice,
    Key,
    LineTemplate,
    Sample,
    find_choice,
    make_key,
    make_reading,
)
from kfjob.joblog.progress.reading import FormatName, Line, LineReading, Reading

MAX_QUOTE = 640
"""Characters of a line to keep as evidence."""
WEAK = 0.5
"""Lines that only count have this quality: another pod with a loss takes precedence."""
TOTAL_BONUS = 0.1
"""Lines that name the last step have this additional quality, so they take precedence over lines with the same values."""
MAX_SILENCE = 3
"""A template that says as much as the primary one takes its place after this number of its own lines between two of those."""
EPOCH_BAR_SHARE = 0.9
"""Share of its quality that a bar of epochs keeps, so that a bar of steps with the same values takes precedence."""


class Block(Struct, frozen=True, kw_only=True):
    """Counters of a line without values, and the values of the lines below it."""

    number: int
    figures: Figures
    names: frozenset[str] = frozenset()


class ReaderState(Struct, frozen=True, kw_only=True):
    """What the reader of one log remembers. Its size does not grow with the log."""

    templates: dict[Key, LineTemplate] = field(default_factory=dict)
    primary: Key | None = None
    """The template that counts steps; other templates only add values that it never has."""
    quality: float = 0.0
    block: Block | None = None
    epoch: Figures | None = None  # the newest line that counts epochs and nothing else
    evaluating: bool = False
    early: LineReading | None = None  # the newest evaluation before any line counts
    table: TableHeader | None = None
    bar: Counter | None = None  # the newest one without a name
    announced: bool = False  # a line said that training begins
    rank: int | None = None  # the lowest rank that progress lines name

    has_nested_bar: bool = False  # the bar that counts steps stands below another one, such as one of epochs

    @property
    def has_loss(self) -> bool:
        """Whether the lines that count steps have a loss."""
        return self.primary is not None and "loss" in _primary_fields(self)

    @property
    def counts_other_bar(self) -> bool:
        """Whether a bar that is not one of epochs counts the steps."""
        last = self.template.last if self.template else None
        return last is not None and last.figures.is_bar and not last.figures.is_epoch_bar

    @property
    def template(self) -> LineTemplate | None:
        """The template that counts; None if none counts yet."""
        return self.templates.get(self.primary) if self.primary is not None else None


Transition = tuple[ReaderState, tuple[LineReading, ...]]
"""The state after a line, and the readings in the line."""


def add_reading(reader: ReaderState, reading: Reading, line: Line) -> Transition:
    """Return the transition for a reading of its own: only what the lines that count do not say is new."""
    extra = reading if reader.primary is None else reading.without_fields(_primary_fields(reader))
    return reader, (LineReading(reading=extra, line=line),) if extra else ()


def add_figures(reader: ReaderState, figures: Figures, line: Line, *, block: int = -1) -> Transition:
    """Return the transition for figures with a counter: they belong to a template, which may count now."""
    if figures.rank is not None and reader.rank is not None and figures.rank > reader.rank:
        return reader, ()
    reader = reader if figures.rank is None else replace(reader, rank=figures.rank)
    key = make_key(figures, joined=block >= 0)
    figures = _with_epoch(reader, figures)
    text = line.text.strip()
    template = reader.templates.get(key) or LineTemplate(example=text[:MAX_EXAMPLE])
    sample = Sample(figures=figures, time=line.time, number=line.number, text=text[:MAX_QUOTE], block=block)
    updates = template.last is not None and block >= 0 and template.last.block == block
    template = template.with_sample(sample, primary_lines=reader.template.lines if reader.template else 0)
    if template.choice is not None:
        return _emit(_with_template(reader, key, template), key, (sample,), template.choice, updates=updates)
    choice = find_choice(template)
    if choice is None:
        return _with_template(reader, key, template), ()
    reader = replace(_with_template(reader, key, template.with_choice(choice)), announced=True)
    return _emit(reader, key, template.samples, choice, updates=False)


def _rate_fields(fields: frozenset[str]) -> float:
    """Return how much lines with these values say: the best template of a log counts its steps."""
    if "loss" in fields:
        return 4.0 if "step" in fields else 3.0 if "epoch" in fields else 2.5
    if not fields & {"speed", "lr"}:
        return WEAK
    return 2.0 if "step" in fields else 1.0


def _with_template(reader: ReaderState, key: Key, template: LineTemplate) -> ReaderState:
    templates = {other: item for other, item in reader.templates.items() if other != key}
    if len(templates) >= MAX_TEMPLATES:
        del templates[next((other for other in templates if other != reader.primary), next(iter(templates)))]
    templates[key] = template
    return replace(reader, templates=templates)


def _emit(reader: ReaderState, key: Key, samples: tuple[Sample, ...], choice: CounterChoice, *, updates: bool) -> Transition:
    """Return the transition for lines of a template that counts."""
    template = reader.templates[key]
    readings = [make_reading(choice, sample.figures, template.example) for sample in samples]
    fields = template.fields.union(*(reading.known_fields for reading in readings))
    if fields != template.fields:
        reader = replace(reader, templates=reader.templates | {key: replace(template, fields=fields)})
    quality = _rate_fields(fields) + TOTAL_BONUS * any(reading.total is not None for reading in readings)
    if template.last is not None and template.last.figures.is_epoch_bar:
        quality *= EPOCH_BAR_SHARE
    if reader.primary != key and (quality > reader.quality or _follows_silence(reader, key, quality)):
        reader = replace(reader, primary=key, quality=quality)
    known = _primary_fields(reader) - ({"step"} if _counts_steps_of_block(reader, choice) else frozenset())
    line_readings = []
    for sample, complete in zip(samples, readings, strict=True):
        reading = complete if reader.primary == key else complete.without_fields(known)
        if reading is not None:
            is_late = sample is not samples[-1]
            reading = replace(reading, late=is_late, extra=reading.extra or updates, conclusive=quality > WEAK)
            line = Line(text=sample.text, number=sample.number, time=sample.time)
            line_readings.append(LineReading(reading=reading, line=line))
    return reader, tuple(line_readings)


def _follows_silence(reader: ReaderState, key: Key, quality: float) -> bool:
    """Return whether a template says as much as the primary one and has printed several lines since: another stage runs."""
    return quality >= reader.quality - TOTAL_BONUS and reader.templates[key].streak >= MAX_SILENCE


def _counts_steps_of_block(reader: ReaderState, choice: CounterChoice) -> bool:
    """Return whether lines with this counter count the steps of the primary template, which joins few of them with a speed.

    CleanRL prints `global_step=2252, episodic_return=[70.]` often, and `SPS: 41` rarely.
    """
    primary = reader.template
    joins_speed = primary is not None and primary.last is not None and primary.last.block >= 0 and "loss" not in primary.fields
    return joins_speed and primary is not None and primary.choice == choice


def _primary_fields(reader: ReaderState) -> frozenset[str]:
    return reader.template.fields if reader.template else frozenset()


MAX_BLOCK = 60
"""Lines of a block of values; later values belong to another step."""


def _with_epoch(reader: ReaderState, figures: Figures) -> Figures:
    """Return figures that count with the epoch that a line above counts."""
    if reader.epoch is None or not figures.counters or figures.is_epoch_bar or figures.counts(Quantity.EPOCH):
        return figures
    return replace(figures, counters=(*figures.counters, *reader.epoch.counters))


def add_step(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a line that counts and has a value; without a loss, the loss may follow."""
    reader = replace(reader, evaluating=False)
    if figures.loss is None:
        reader = replace(reader, block=Block(number=line.number, figures=_with_epoch(reader, figures), names=_names(figures)))
    return add_figures(reader, figures, line)


def begin_block(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a line that counts and has no value: the values may follow."""
    is_weak = figures.metric is None and all(counter.priority >= WEAK_COUNT for counter in figures.counters)
    if reader.block and continues(reader, line) and is_weak and not _names(figures) & reader.block.names:
        return reader, ()  # `Total timesteps` below `Learning iteration`
    is_epoch = not figures.counts(Quantity.STEP) and all(counter.priority < CLEAR_COUNT for counter in figures.counters)
    after = replace(
        reader,
        block=Block(number=line.number, figures=_with_epoch(reader, figures), names=_names(figures)),
        epoch=figures if is_epoch else reader.epoch,
        evaluating=False,
    )
    if figures.metric is not None or figures.lr is not None or figures.counts(Quantity.EPOCH):
        return add_figures(after, figures, line)
    return after, ()


def add_pair(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for one line of a table `| name | value |`.

    A name that comes again begins the next block.
    """
    names = _names(figures)
    block = reader.block
    if block is None or not continues(reader, line) or names & block.names:
        block = Block(number=line.number, figures=Figures())
    block = replace(block, figures=merge_figures(block.figures, figures), names=block.names | names)
    return _add_block(replace(reader, block=block), block, line)


def add_value(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a line that has a value and counts nothing."""
    if reader.block is None or not continues(reader, line):
        return add_figures(reader, figures, line)  # it cannot count without a counter, but it looks like progress
    if reader.evaluating:
        return reader, _emit_evaluation(reader, figures, line)
    merged = merge_figures(reader.block.figures, figures)
    if merged is reader.block.figures:
        return reader, ()
    block = replace(reader.block, figures=merged)
    return _add_block(replace(reader, block=block), block, line)


def _emit_evaluation(reader: ReaderState, figures: Figures, line: Line) -> tuple[LineReading, ...]:
    """Return the reading of a loss below the heading of an evaluation, once training progress is known."""
    if figures.loss is None or figures.loss_priority >= SUM_OF_LOSSES or reader.primary is None:
        return ()
    reading = Reading(format=FormatName.GENERAL, evaluation_loss=figures.loss, rank=figures.rank, extra=True)
    return (LineReading(reading=reading, line=line),)


def _add_block(reader: ReaderState, block: Block, line: Line) -> Transition:
    if not block.figures.counters or (block.figures.loss is None and block.figures.speed is None):
        return reader, ()
    return add_figures(reader, block.figures, line, block=block.number)


def continues(reader: ReaderState, line: Line) -> bool:
    """Return whether the line may belong to the block above it."""
    return reader.block is not None and line.number - reader.block.number <= MAX_BLOCK


def _names(figures: Figures) -> frozenset[str]:
    names = {counter.name for counter in figures.counters}
    values = {figures.loss_name, "lr" if figures.lr is not None else "", "speed" if figures.speed is not None else ""}
    return frozenset(names | values) - {""}


def merge_figures(before: Figures, after: Figures) -> Figures:
    """Return the figures with those of one more line of the same step: the better name wins, else the first."""
    names = {counter.name for counter in before.counters}
    values: dict[str, object] = {}
    if counters := tuple(counter for counter in after.counters if counter.name not in names):
        values["counters"] = (*before.counters, *counters)
    is_sum = before.loss is not None and after.loss_name in TOTAL_WORDS
    loss_priority = SUM_OF_LOSSES if is_sum else after.loss_priority
    if after.loss is not None and loss_priority < before.loss_priority:
        values |= {"loss": after.loss, "loss_name": after.loss_name, "loss_priority": loss_priority}
        values["other_losses"] = after.other_losses
    elif after.loss is not None and loss_priority == before.loss_priority and after.loss_name != before.loss_name:
        values["other_losses"] = (*before.other_losses, (after.loss_name, after.loss))[:MAX_OTHER_LOSSES]
    if after.speed is not None and after.speed_priority < before.speed_priority:
        values |= {"speed": after.speed, "speed_priority": after.speed_priority, "unit": after.unit}
    if after.lr is not None and after.lr_priority < before.lr_priority:
        values |= {"lr": after.lr, "lr_priority": after.lr_priority}
    if after.grad_norm is not None and before.grad_norm is None:
        values["grad_norm"] = after.grad_norm
    return replace(before, **values) if values else before
