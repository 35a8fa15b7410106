"""This module joins the figures of one step that a program prints in several lines."""

from __future__ import annotations

from msgspec.structs import replace

from kfjob.joblog.lines.meanings import Quantity
from kfjob.joblog.lines.vocabulary import CLEAR_COUNT, SUM_OF_LOSSES, TOTAL_WORDS, WEAK_COUNT
from kfjob.joblog.progress.figures.line import MAX_OTHER_LOSSES, Figures
from kfjob.joblog.progress.general.state import Block, Emission, Line, ReaderState, Transition, add_figures
from kfjob.joblog.progress.reading import FormatName, Reading

MAX_BLOCK = 60
"""Lines of a block of values; later values belong to another step."""


def with_epoch(reader: ReaderState, figures: Figures) -> Figures:
    """Return the figures with the epoch that a line above counts."""
    if reader.epoch is None or figures.counts(Quantity.EPOCH):
        return figures
    return replace(figures, counters=(*figures.counters, *reader.epoch.counters))


def add_step(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a line that counts and has a value; without a loss, the loss may follow."""
    complete = with_epoch(reader, figures)
    reader = replace(reader, evaluating=False)
    if figures.loss is None:
        reader = replace(reader, block=Block(number=line.number, figures=complete, names=_names(figures)))
    return add_figures(reader, complete, line)


def begin_block(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for a line that counts and has no value: the values may follow."""
    is_weak = not figures.has_reward and all(counter.priority >= WEAK_COUNT for counter in figures.counters)
    if reader.block and continues(reader, line) and is_weak:
        return reader, ()  # `Total timesteps` below `Learning iteration`
    complete = with_epoch(reader, figures)
    if figures.lr is not None:
        return add_figures(reader, complete, line)
    is_epoch = not figures.counts(Quantity.STEP) and all(counter.priority < CLEAR_COUNT for counter in figures.counters)
    after = replace(
        reader,
        block=Block(number=line.number, figures=complete, names=_names(figures)),
        epoch=figures if is_epoch else reader.epoch,
        evaluating=False,
    )
    if figures.metric is not None or figures.counts(Quantity.EPOCH):
        return add_figures(after, complete, line)
    return after, ()


def add_pair(reader: ReaderState, figures: Figures, line: Line) -> Transition:
    """Return the transition for one line of a table `| name | value |`, or of a dictionary.

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


def _emit_evaluation(reader: ReaderState, figures: Figures, line: Line) -> tuple[Emission, ...]:
    """Return the reading of a loss below the heading of an evaluation, once training progress is known."""
    if figures.loss is None or figures.loss_priority >= SUM_OF_LOSSES or reader.primary is None:
        return ()
    reading = Reading(format=FormatName.GENERAL, evaluation_loss=figures.loss, rank=figures.rank, extra=True)
    return (Emission(reading=reading, line=line),)


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
    if after.duration is not None and before.duration is None:
        values |= {"duration": after.duration, "is_difference": after.is_difference}
    if after.grad_norm is not None and before.grad_norm is None:
        values["grad_norm"] = after.grad_norm
    return replace(before, **values) if values else before
