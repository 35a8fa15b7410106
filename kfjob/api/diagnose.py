"""Find the first cause of a failure from every line of every pod, also of the containers before the last restart."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from kfjob.api.capacity import fit
from kfjob.api.capacity.nodes import read_nodes
from kfjob.api.excerpts import mark_previous
from kfjob.api.logs.merge import merge_logs
from kfjob.api.reader import JobReader, LiveReader, find_source, name_job, open_view
from kfjob.backends.base import LogRange
from kfjob.backends.resources import CORE
from kfjob.base.errors import Forbidden, KfjobError
from kfjob.joblog.diagnose.diagnosis import Diagnosis
from kfjob.joblog.diagnose.engine.collector import SymptomCollector
from kfjob.joblog.diagnose.engine.history import JobHistory
from kfjob.joblog.diagnose.engine.ranking import diagnose
from kfjob.joblog.diagnose.rules import check_ids
from kfjob.joblog.diagnose.warnings import DistinctWarning
from kfjob.joblog.events import Event, LinesSkipped, LogGap, LogLine, PodChanged, StoreChanged, Tick
from kfjob.joblog.observe_config import ObserveConfig
from kfjob.joblog.prefilter import Prefilter
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all
from kfjob.kinds.base import PodTemplate
from kfjob.redaction import Redactor
from kfjob.redaction.structs import redact_struct

_SCHEDULING = frozenset(check_ids("no-capacity", "no-node-so-large", "taint", "no-node-matches", "unschedulable"))
"""Rules about pods that find no node."""
_WAIT = "the pod starts when other pods have ended (`kubectl get pods -A -o wide`), or with lower `resources`"
_CHANGE = "waiting does not help: change `resources`, `instance` or `scheduling`, or add such nodes"


class Examination(Struct, frozen=True):
    """What all logs of a job show."""

    view: JobView
    diagnosis: Diagnosis
    warnings: tuple[DistinctWarning, ...]
    history: JobHistory
    uncounted: int
    """Warning lines of no entry of `warnings`, because it is full."""


def examine(reader: JobReader, *, on_event: Callable[[Event], None] | None = None) -> Examination:
    """Read the state, the events and all logs of a job, and diagnose it; `on_event` receives every event.

    Raises:
        NotFound: the job is gone.
    """
    symptoms, view, filters = SymptomCollector(), open_view(reader), _ViewFilters(reader.config)
    for event in _read_everything(reader):
        view = reduce_all(view, filters.select(event))
        symptoms.feed(event, view)
        if on_event:
            on_event(event)
    view = reduce_all(view, filters.skipped())
    redactor = Redactor(reader.secrets)
    diagnosis = _explain_scheduling(reader, diagnose(symptoms, view, job=name_job(reader), source=find_source(reader)))
    return Examination(
        view=view,
        diagnosis=redact_struct(diagnosis, redactor),
        warnings=tuple(redact_struct(warning, redactor) for warning in symptoms.warnings.ranked(diagnosis.harmless_rules)),
        history=symptoms.history,
        uncounted=symptoms.warnings.uncounted,
    )


def _explain_scheduling(reader: JobReader, diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with what the nodes lack for a pod that finds none; unchanged where the user may not list them."""
    first = diagnosis.first_cause
    if not isinstance(reader, LiveReader) or first is None or first.rule not in _SCHEDULING:
        return diagnosis
    with suppress(KfjobError):
        cluster = reader.target.cluster.inventory(reader.ref.namespace)
        pod = cluster.get_object(CORE, "pods", first.pod) or {}
        nodes = read_nodes(cluster)
        with suppress(Forbidden):
            fit.add_existing_pods(nodes, cluster.list_objects(CORE, "pods", namespaced=False))
        templates = [PodTemplate(names=(first.pod,), metadata={}, spec=pod.get("spec") or {})]
        for misfit in fit.find_misfits(nodes, templates) if nodes else ():
            remedy = _WAIT if misfit.is_full else _CHANGE
            return replace(diagnosis, first_cause=replace(first, cause=misfit.reason, remedy=remedy))
    return diagnosis


_Container = tuple[str, str, str]
"""Names of a pod and of its container, and the id of the container."""


class _ViewFilters:
    """Selects the events for the view: it needs few lines, and takes three times as long per line as the symptoms."""

    def __init__(self, config: ObserveConfig) -> None:
        self._prefilters: dict[_Container, Prefilter] = defaultdict(lambda: Prefilter(config))
        self._skipped: Counter[_Container] = Counter()

    def select(self, event: Event) -> list[Event]:
        """Return the event if the view needs it, after the number of lines that were skipped before it."""
        if not isinstance(event, LogLine):
            return [event]
        key = event.pod, event.container, event.container_id
        if not self._prefilters[key].select(event.text.encode()):
            self._skipped[key] += 1
            return []
        count = self._skipped.pop(key, 0)
        return [_skip(key, count), event] if count else [event]

    def skipped(self) -> list[Event]:
        """Return the lines that were skipped at the ends of the logs."""
        return [_skip(key, count) for key, count in self._skipped.items()]


def _skip(source: _Container, count: int) -> Event:
    pod, container, container_id = source
    return LinesSkipped(pod=pod, container=container, container_id=container_id, count=count)


def _read_everything(reader: JobReader) -> Iterator[Event]:
    snapshot = reader.snapshot()
    with suppress(KfjobError):  # the job was removed meanwhile, or its events may not be read
        yield from reader.events()
    for pod in snapshot.pods:
        yield from _read_previous(reader, pod)
    yield snapshot.job
    if snapshot.store:
        yield StoreChanged(state=snapshot.store)
    yield from snapshot.pods
    yield from merge_logs(reader, [(pod.pod, LogRange()) for pod in snapshot.pods])
    yield Tick(time=snapshot.observed or time.time_ns())  # everything was read


def _read_previous(reader: JobReader, pod: PodChanged) -> Iterator[LogLine | LogGap]:
    """Read the log of the previous container, which holds the cause of a restart."""
    if not pod.restarts and not reader.archived:
        return
    with suppress(KfjobError):  # the log no longer exists, or the pod was replaced
        for line in reader.logs(pod.pod, LogRange(previous=True)):
            yield mark_previous(line, pod)
