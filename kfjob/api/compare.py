"""Launches side by side: their state, their losses by step, and the fields of their specs that differ."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.html_page import HtmlPage
from kfjob.api.launches import Launch
from kfjob.api.secrets import find_secrets
from kfjob.base.parsing import ParseError, parse_json
from kfjob.base.version import __version__
from kfjob.joblog.progress.curve import Curve, mean_loss
from kfjob.joblog.progress.training import Training
from kfjob.objects.differences import MISSING, differences, format_path, get_value
from kfjob.redaction import Redactor
from kfjob.report.comparison import ComparisonPage, Series, render_comparison
from kfjob.report.numbers import choose_ticks

ROWS = 12
"""Steps at which the losses are compared."""


class StepLosses(Struct, frozen=True, kw_only=True):
    """The losses of all launches about one step."""

    step: int  # step of the whole run
    losses: tuple[float | None, ...]
    """The mean loss of each launch in the lines about this step; None where it printed none."""


class SpecDifference(Struct, frozen=True, kw_only=True):
    """A field of the specs that differs."""

    field: str  # path of the field in the spec
    values: tuple[str, ...]
    """The value in the spec of each launch, a text as it is and all else as JSON, without secrets; "" where it is not set."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Launches side by side."""

    launches: tuple[Launch, ...]
    """The launches, in the order in which they were named."""
    steps: tuple[StepLosses, ...]
    """Their losses at the same steps."""
    spec: tuple[SpecDifference, ...]
    """The fields of their specs that differ."""

    def to_html(self) -> HtmlPage:
        """Return one HTML page with the curves over each other. It needs no other file."""
        redactor = Redactor(frozenset[str]().union(*(find_secrets(launch.snapshot) for launch in self.launches)))
        page = ComparisonPage(
            series=[Series(launch.name, launch.view, launch.first_cause) for launch in self.launches],
            differences=[(item.field, item.values) for item in self.spec],
            created=time.time_ns(),
            version=__version__,
        )
        return HtmlPage(render_comparison(page, redact=redactor.text))

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame of its own."""
        return self.to_html()._repr_html_()


def compare_launches(launches: Sequence[Launch]) -> Comparison:
    """Return the launches side by side."""
    launches = [*_align_epochs(launches)]
    curves = [launch.progress.curve for launch in launches]
    return Comparison(launches=tuple(launches), steps=tuple(_align_steps(curves)), spec=tuple(_compare_specs([*launches])))


def _align_epochs(launches: Sequence[Launch]) -> Iterator[Launch]:
    """Yield the launches with curves by the step of the whole run, also where a program counts steps in each epoch.

    The log of a launch that resumed in epoch 3 does not show how many steps were before. The others show how long an epoch
    is, and whether epochs count from 0.
    """
    trainings = [launch.progress for launch in launches]
    if not _count_in_epochs(trainings):
        yield from launches
        return
    from_zero = any(training.position.first_epoch == 0 for training in trainings)
    lengths = [length for training in trainings if (length := training.position.steps_per_epoch)]
    longest = max(lengths or [training.step or 0 for training in trainings])
    for launch, training in zip(launches, trainings, strict=True):
        first, position = training.first_step, training.position
        if first is None or training.first_run_step is None or position.first_epoch is None:
            yield launch
            continue
        epochs = int(position.first_epoch) if from_zero else int(position.first_epoch) - 1
        yield _shift(launch, epochs * (position.steps_per_epoch or longest) - (training.first_run_step - first))


def _count_in_epochs(trainings: Sequence[Training]) -> bool:
    """Return whether the steps begin again in each epoch: a step of a later epoch is not higher than that of an earlier one."""
    if any(training.position.counts_on for training in trainings):
        return False
    ends = [(item.epoch, item.step) for item in trainings if item.epoch is not None and item.step is not None]
    return any(training.per_epoch for training in trainings) or any(
        training.first_step is not None
        and training.position.first_epoch is not None
        and epoch < training.position.first_epoch
        and training.first_step <= step
        for training in trainings
        for epoch, step in ends
    )


def _shift(launch: Launch, steps: int) -> Launch:
    """Return the launch with its curves moved by a number of steps."""

    def move(curve: Curve) -> Curve:
        return tuple(replace(point, step=point.step + steps) for point in curve)

    training = launch.progress
    training = replace(training, curve=move(training.curve), evaluations=move(training.evaluations))
    return replace(launch, view=replace(launch.view, training=training))


def _align_steps(curves: Sequence[Curve]) -> Iterator[StepLosses]:
    """Yield the losses at about `ROWS` round steps, from the first to the last that any launch printed."""
    steps = sorted({point.step for curve in curves for point in curve})
    if not steps:
        return
    targets = [round(tick) for tick in choose_ticks(steps[0], steps[-1], ROWS)] if len(steps) > ROWS else steps
    half = (targets[1] - targets[0]) / 2 if len(steps) > ROWS else 0.5
    for step in targets:
        losses = tuple(mean_loss(point for point in curve if step - half <= point.step < step + half) for curve in curves)
        if any(loss is not None for loss in losses):
            yield StepLosses(step=step, losses=losses)


def _compare_specs(launches: Sequence[Launch]) -> Iterator[SpecDifference]:
    """Yield the fields that differ between any two of the specs that are recorded; names and launch ids always differ."""
    specs = [_read_spec(launch) for launch in launches]
    first = next((spec for spec in specs if spec), {})
    paths = dict.fromkeys(item.path for spec in specs if spec for item in differences(first, spec))
    for path in (path for path in paths if path not in (("name",), ("train", "continues"))):
        values = [get_value(spec, path) for spec in specs]
        yield SpecDifference(
            field=format_path(path),
            values=tuple(_format_value(value) for value in values),
        )


def _format_value(value: Any) -> str:
    if value is MISSING or value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read_spec(launch: Launch) -> dict[str, Any]:
    """Return the recorded spec without secrets; {} if there is none."""
    try:
        spec = parse_json(launch.snapshot.spec or "{}")
    except ParseError:  # kfjob did not write it
        return {}
    redacted = Redactor(find_secrets(launch.snapshot)).value(spec)
    return redacted if isinstance(redacted, dict) else {}
