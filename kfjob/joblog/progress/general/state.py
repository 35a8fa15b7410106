"""This module holds the state of the general reader, and emits the readings of templates that count."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.structs import replace

from kfjob.joblog.progress.figures.line import Counter, Figures
from kfjob.joblog.progress.figures.tables import Table
from kfjob.joblog.progress.general.readings import WEAK, known_fields, limit_reading, make_reading, rate_fields
from kfjob.joblog.progress.general.templates import (
    MAX_EXAMPLE,
    MAX_TEMPLATES,
    Choice,
    Key,
    Sample,
    Template,
    find_choice,
    make_key,
)
from kfjob.joblog.progress.reading import FormatName, Reading

MAX_QUOTE = 640
"""Characters of a line to keep as evidence."""
KNOWN_FORMAT_BONUS = 0.5
"""A known format has this additional quality, so it takes precedence over a template with the same values."""
EPOCH_BAR_SHARE = 0.9
"""Share of its quality that a bar of epochs keeps, so that a bar of steps with the same values takes precedence."""
_FORMAT_KEY = "format"


class Line(Struct, frozen=True, kw_only=True):
    """One state of a log line, without colours."""

    text: str
    number: int
    time: int | None = None


class Block(Struct, frozen=True, kw_only=True):
    """Counters of a line without values, and the values of the lines below it."""

    number: int
    figures: Figures
    names: frozenset[str] = frozenset()


class Emission(Struct, frozen=True, kw_only=True):
    """A reading with its line."""

    reading: Reading
    line: Line


class ReaderState(Struct, frozen=True, kw_only=True):
    """What the reader of one log remembers. Its size does not grow with the log."""

    templates: dict[Key, Template] = field(default_factory=dict)
    primary: Key | None = None
    """The template that counts steps; other templates only add values that it never has."""
    quality: float = 0.0
    known_format_fields: frozenset[str] = frozenset()
    block: Block | None = None
    epoch: Figures | None = None  # the newest line that counts epochs and nothing else
    evaluating: bool = False
    early: Emission | None = None  # the newest evaluation before any line counts
    table: Table | None = None
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
        if last is None:
            return self.primary == (_FORMAT_KEY, FormatName.BAR)
        return last.figures.is_bar and not last.figures.is_epoch_bar

    @property
    def template(self) -> Template | None:
        """The template that counts; None for a known format, or if none counts yet."""
        return self.templates.get(self.primary) if self.primary is not None else None


Transition = tuple[ReaderState, tuple[Emission, ...]]
"""The state after a line, and the readings in the line."""


def add_known(reader: ReaderState, reading: Reading, line: Line, *, key: Key = ()) -> Transition:
    """Return the transition for a reading of a known format, or of a bar without a name."""
    if reading.rank is not None and reader.rank is not None and reading.rank > reader.rank:
        return reader, ()
    fields = known_fields(reading)
    emission = Emission(reading=reading, line=line)
    key = key or (_FORMAT_KEY, reading.format)
    rank = reader.rank if reading.rank is None else reading.rank
    if reader.primary == key and reader.announced and reader.rank == rank and fields <= reader.known_format_fields:
        return reader, (emission,)  # as for nearly every line
    reader = replace(reader, announced=reader.announced or reading.conclusive, rank=rank)
    if reader.primary == key:
        return replace(reader, known_format_fields=reader.known_format_fields | fields), (emission,)
    quality = rate_fields(fields) + KNOWN_FORMAT_BONUS
    if quality > reader.quality and reading.conclusive:
        return replace(reader, primary=key, quality=quality, known_format_fields=fields), (emission,)
    if reader.primary is None:
        return reader, (emission,)
    extra = limit_reading(reading, _primary_fields(reader))
    return reader, (replace(emission, reading=extra),) if extra else ()


def add_figures(reader: ReaderState, figures: Figures, line: Line, *, block: int = -1) -> Transition:
    """Return the transition for figures with a counter: they belong to a template, which may count now."""
    if figures.rank is not None and reader.rank is not None and figures.rank > reader.rank:
        return reader, ()
    reader = reader if figures.rank is None else replace(reader, rank=figures.rank)
    key = make_key(figures, joined=block >= 0)
    text = line.text.strip()
    template = reader.templates.get(key) or Template(example=text[:MAX_EXAMPLE])
    sample = Sample(figures=figures, time=line.time, number=line.number, text=text[:MAX_QUOTE], block=block)
    updates = template.last is not None and block >= 0 and template.last.block == block
    template = template.with_sample(sample)
    if template.choice is not None:
        return _emit(_with_template(reader, key, template), key, (sample,), template.choice, updates=updates)
    choice = find_choice(template)
    if choice is None:
        return _with_template(reader, key, template), ()
    reader = replace(_with_template(reader, key, template.with_choice(choice)), announced=True)
    return _emit(reader, key, template.samples, choice, updates=False)


def _with_template(reader: ReaderState, key: Key, template: Template) -> ReaderState:
    templates = {other: item for other, item in reader.templates.items() if other != key}
    if len(templates) >= MAX_TEMPLATES:
        del templates[next((other for other in templates if other != reader.primary), next(iter(templates)))]
    templates[key] = template
    return replace(reader, templates=templates)


def _emit(reader: ReaderState, key: Key, samples: tuple[Sample, ...], choice: Choice, *, updates: bool) -> Transition:
    """Return the transition for lines of a template that counts."""
    template = reader.templates[key]
    readings = [make_reading(choice, sample.figures, template.example) for sample in samples]
    fields = template.fields.union(*map(known_fields, readings))
    if fields != template.fields:
        reader = replace(reader, templates=reader.templates | {key: replace(template, fields=fields)})
    quality = rate_fields(fields)
    if template.last is not None and template.last.figures.is_epoch_bar:
        quality *= EPOCH_BAR_SHARE
    if reader.primary != key and quality > reader.quality:
        reader = replace(reader, primary=key, quality=quality)
    known = _primary_fields(reader) - ({"step"} if _counts_steps_of_block(reader, choice) else frozenset())
    emissions = []
    for sample, complete in zip(samples, readings, strict=True):
        reading = complete if reader.primary == key else limit_reading(complete, known)
        if reading is not None:
            is_late = sample is not samples[-1]
            reading = replace(reading, late=is_late, extra=reading.extra or updates, conclusive=quality > WEAK)
            line = Line(text=sample.text, number=sample.number, time=sample.time)
            emissions.append(Emission(reading=reading, line=line))
    return reader, tuple(emissions)


def _counts_steps_of_block(reader: ReaderState, choice: Choice) -> bool:
    """Return whether lines with this counter count the steps of the primary template, which joins few of them with a speed.

    CleanRL prints `global_step=2252, episodic_return=[70.]` often, and `SPS: 41` rarely.
    """
    primary = reader.template
    joins_speed = primary is not None and primary.last is not None and primary.last.block >= 0 and "loss" not in primary.fields
    return joins_speed and primary is not None and primary.choice == choice


def _primary_fields(reader: ReaderState) -> frozenset[str]:
    return reader.template.fields if reader.template else reader.known_format_fields
