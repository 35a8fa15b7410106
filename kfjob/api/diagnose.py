"""What is wrong with a job: every line of every pod is read once, and the log of the container before the last restart."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kfjob.api.logs import read as logs
from kfjob.backends.base import LogRange
from kfjob.errors import KfjobError
from kfjob.events import Event, LogGap, LogLine, PodChanged, Tick
from kfjob.observe.diagnose.diagnosis import Diagnosis
from kfjob.observe.diagnose.ranking import diagnose as answer
from kfjob.observe.diagnose.symptoms import SymptomCollector
from kfjob.observe.diagnose.warnings import DistinctWarning
from kfjob.observe.prefilter import Prefilter
from kfjob.observe.view import JobView, reduce

if TYPE_CHECKING:
    from kfjob.api.run import Run


@dataclass(frozen=True)
class Examined:
    """A job that was looked at closely."""

    view: JobView
    diagnosis: Diagnosis
    warnings: tuple[DistinctWarning, ...]
    uncounted: int  # lines of warnings beyond those that are told apart


def examine(run: Run, *, also: Callable[[Event], None] | None = None) -> Examined:
    """Read all that there is of a job now, and say what is wrong with it; `also` is given every event.

    Raises:
        NotFound: the job is gone.
    """
    symptoms, view = SymptomCollector(), JobView(config=run.config)
    prefilters: dict[tuple[str, str], Prefilter] = defaultdict(lambda: Prefilter(run.config))
    for event in _everything(run):
        # the view needs few of the lines, and takes three times as long as the symptoms for each
        if not isinstance(event, LogLine) or prefilters[event.pod, event.container_id].select(event.text.encode()):
            view = reduce(view, event)
        symptoms.feed(event, view)
        if also:
            also(event)
    return Examined(
        view=view,
        diagnosis=answer(symptoms, view, job=run.name),
        warnings=tuple(symptoms.warnings.ranked()),
        uncounted=symptoms.warnings.uncounted,
    )


def _everything(run: Run) -> Iterator[Event]:
    snapshot = run.snapshot()
    with suppress(KfjobError):  # the job went while we looked, or they may not be read
        yield from run.events()
    for pod in snapshot.pods:
        yield from _previous(run, pod)
    yield snapshot.job
    yield from snapshot.pods
    yield from logs.merged(run, [(pod.pod, LogRange()) for pod in snapshot.pods])
    if not snapshot.job.phase.ended:
        yield Tick(time=time.time_ns())


def _previous(run: Run, pod: PodChanged) -> Iterator[LogLine | LogGap]:
    """The log of the container before, which holds the cause of a restart; its id is not that of the present one."""
    if not pod.restarts and not run.kept:
        return
    with suppress(KfjobError):  # it is gone already, or the pod has been replaced
        for line in run.logs(pod.pod, LogRange(previous=True)):
            if isinstance(line, LogGap) or line.container_id not in {"", pod.container_id}:
                yield line
            else:
                yield replace(line, container_id="previous")
