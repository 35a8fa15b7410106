"""The grammar of logs: blocks, bars, JSON and tables, with prefixes, epochs and ranks; nobody wrote these formats down."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kfjob.joblog.progress.training import Training
from tests.unit.joblog.test_general import PREFIXES, read

Row = tuple[int, float]
"""A step and its loss."""
Write = Callable[[int, float], list[str]]
"""It returns the lines of one step."""

FEWER = settings(max_examples=40)  # each example is a whole log
STEPS = st.sampled_from(["step", "Step", "iter", "iteration", "global_step", "train/step", "num_updates", "batch"])
LOSSES = st.sampled_from(["loss", "Loss", "train_loss", "train/loss", "total_loss", "ce_loss", "lm loss"])
SEPARATORS = st.sampled_from([": ", "=", " = ", " : "])
HEADS = st.sampled_from(list(PREFIXES.values()))
LOGGER_HEADS = st.sampled_from([head for name, head in PREFIXES.items() if name != "label"])
"""srun's label `0: ` looks like the first column of a table."""


@st.composite
def rows(draw: st.DrawFn, *, first: int = 0) -> list[Row]:
    """Return steps with the same distance, and losses that change."""
    distance = draw(st.sampled_from([1, 5, 10, 100]))
    losses = draw(st.lists(st.integers(1000, 99999), min_size=4, max_size=8, unique=True))
    return [(first + distance * (number + 1), loss / 10_000) for number, loss in enumerate(losses)]


@st.composite
def counters(draw: st.DrawFn) -> Write:
    """`Epoch [1/5], Step [100/600] loss: 2.3` and other counters."""
    layout = draw(
        st.sampled_from(
            [
                "[{s}/9000]",
                "[ {s}/9000]",
                "Epoch: [1][{s}/9000]",
                "Epoch [1/5], Step [{s}/9000],",
                "[1][{s}/9000]",
                "[1, {s:5d}]",
                "Train Epoch: 1 [{s}/9000 (1%)]",
                "Iter(train) [{s}/9000]",
                "{s}/9000 |",
            ]
        )
    )
    name, separator = draw(LOSSES), draw(SEPARATORS)
    return lambda step, loss: [f"{layout.format(s=step)} {name}{separator}{loss}"]


@st.composite
def objects(draw: st.DrawFn) -> Write:
    """Return a JSON object or a Python dict, flat or nested, alone or in a message."""
    step_name, loss_name = draw(STEPS), draw(st.sampled_from(["loss", "train_loss", "total_loss"]))
    nested, text, head = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(["", "metrics: ", "log "]))
    dump = draw(st.sampled_from([json.dumps, repr]))

    def write(step: int, loss: float) -> list[str]:
        values = {loss_name: f"{loss}" if text else loss, "lr": 0.001}
        return [head + dump({step_name: step, "train": values} if nested else {step_name: step, **values})]

    return write


@st.composite
def blocks(draw: st.DrawFn) -> Write:
    """Return a line with a step, and lines with values below it."""
    step_name, loss_name, separator = draw(STEPS), draw(LOSSES), draw(SEPARATORS)
    indent = draw(st.sampled_from(["", "  ", "    ", "\t"]))
    heading = draw(st.sampled_from(["[{n}={s}/9000,epoch=1]", "{n}: {s}", "{n} {s} of 9000", "--- {n} {s} ---"]))
    others = draw(st.lists(st.sampled_from(["memory", "time", "grad/norm", "acc"]), max_size=3, unique=True))
    place = draw(st.integers(0, 3))

    def write(step: int, loss: float) -> list[str]:
        values = [f"{indent}{name}{separator}0.5" for name in others]
        values.insert(place, f"{indent}{loss_name}{separator}{loss}")
        return [heading.format(n=step_name, s=step), *values]

    return write


@st.composite
def cells(draw: st.DrawFn) -> Write:
    """Return a table of one step, with a name and a value in each line."""
    step_name, loss_name, width = draw(STEPS), draw(LOSSES), draw(st.sampled_from([12, 20]))
    last = draw(st.booleans())

    def write(step: int, loss: float) -> list[str]:
        pairs = [(loss_name, f"{loss}"), ("fps", "812")]
        pairs.insert(2 if last else 0, (step_name, f"{step}"))
        return ["-" * 30, *(f"| {name:{width}} | {value:9} |" for name, value in pairs), "-" * 30]

    return write


@st.composite
def pairs(draw: st.DrawFn) -> Write:
    """Return one line with names and values."""
    step_name, loss_name, separator = draw(STEPS), draw(LOSSES), draw(SEPARATORS)
    joint = draw(st.sampled_from([", ", " | ", "  ", "; "]))
    return lambda step, loss: [joint.join((f"{step_name}{separator}{step}", f"{loss_name}{separator}{loss}"))]


@st.composite
def table_logs(draw: st.DrawFn) -> tuple[list[str], list[Row]]:
    """Return a header and rows."""
    mark = draw(st.sampled_from(["  ", " | ", ",", "\t"]))
    names = ["step", draw(st.sampled_from(["loss", "train_loss", "Training Loss"])), *draw(st.permutations(["lr", "time"]))]
    log = draw(rows())
    edge = "|" if mark == " | " else ""
    lines = [mark.join([f"{step}", f"{loss}", "0.5", "0.5"]) for step, loss in log]
    return [f"{edge} {line} {edge}".strip() for line in [mark.join(names), *lines]], log


@st.composite
def bars(draw: st.DrawFn) -> tuple[list[str], list[Row]]:
    """Return a progress bar with the loss behind or before it, redrawn in one line or printed in several."""
    unit, in_front = draw(st.sampled_from(["it", "step", "batch"])), draw(st.booleans())
    name = draw(st.sampled_from(["Training", "Epoch 1", "Steps", "train"]))
    joint = draw(st.sampled_from(["\r", "\n"]))
    log = draw(rows())
    states = []
    for step, loss in log:
        description, postfix = (f"{name} loss: {loss}", "") if in_front else (name, f", loss={loss}")
        states.append(f"{description}:   5%|▌         | {step}/9000 [00:01<00:09,  4.50{unit}/s{postfix}]")
    return joint.join(states).split("\n"), log


LINES = st.one_of(pairs(), counters(), objects())
STEP_BLOCKS = st.one_of(LINES, blocks(), cells())


def check(training: Training, expected: Sequence[Row], lines: list[str]) -> None:
    """Compare the state and the curve with the steps and losses that the lines hold."""
    text = "\n".join(lines[-12:])
    assert (training.step, training.loss) == expected[-1], text
    assert [(point.step, point.loss) for point in training.curve] == list(expected), text


@FEWER
@given(write=LINES, log=rows(), head=HEADS)
def test_lines_with_any_prefix_are_read(write: Write, log: list[Row], head: str):
    lines = [head + line for row in log for line in write(*row)]
    check(read(lines).training, log, lines)


@FEWER
@given(write=st.one_of(blocks(), cells()), log=rows(), head=LOGGER_HEADS)
def test_values_over_several_lines_join(write: Write, log: list[Row], head: str):
    lines = [head + line for row in log for line in write(*row)]
    check(read(lines).training, log, lines)


@FEWER
@given(log=table_logs(), head=LOGGER_HEADS)
def test_tables_are_read(log: tuple[list[str], list[Row]], head: str):
    lines = [head + line for line in log[0]]
    check(read(lines).training, log[1], lines)


@FEWER
@given(log=bars(), head=HEADS)
def test_bars_are_read(log: tuple[list[str], list[Row]], head: str):
    lines, expected = [head + line for line in log[0]], log[1]
    if len(lines) == 1:  # of a redrawn line only the first and the newest states are read
        expected = [*expected[:4], *expected[4:][-3:]]
    check(read(lines).training, expected, lines)


@FEWER
@given(write=st.one_of(pairs(), objects()), log=rows(), epochs=st.integers(2, 4))
def test_steps_that_restart_in_each_epoch_count_on(write: Write, log: list[Row], epochs: int):
    lines = [line for epoch in range(epochs) for step, loss in log for line in write(step, loss + epoch)]
    training, last = read(lines).training, log[-1][0]
    assert (training.step, training.run_step) == (last, last * epochs), lines[-1]
    expected = [(step + last * epoch, loss + epoch) for epoch in range(epochs) for step, loss in log]
    assert [(point.step, point.loss) for point in training.curve] == expected


@FEWER
@given(write=LINES, log=rows(), ranks=st.permutations(range(4)))
def test_ranks_that_are_interleaved_have_the_curve_of_rank_0(write: Write, log: list[Row], ranks: list[int]):
    lines = [f"[rank{rank}]: {line}" for step, loss in log for rank in ranks for line in write(step, loss + rank)]
    training = read(lines).training
    assert (training.step, training.loss) == log[-1]
    assert [(point.step, point.loss) for point in training.curve][-(len(log) - 2) :] == log[2:]


@FEWER
@given(write=STEP_BLOCKS, log=rows(), noise=st.lists(st.text("abcdefgh :/.-_0123456789", max_size=60), min_size=4, max_size=8))
def test_other_lines_between_do_not_matter(write: Write, log: list[Row], noise: list[str]):
    lines = [line for row, other in zip(log, [*noise, *noise], strict=False) for line in [*write(*row), f"worker: {other}"]]
    training = read(lines).training
    assert (training.step, training.loss) == log[-1], "\n".join(lines)
