"""One job in one's hands: a Run, of `submit` or `attach`, which answers questions about the job and ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfjob.api import observe_config
from kfjob.api import view as views
from kfjob.api.lifecycle import archive, limits
from kfjob.api.lifecycle import stop as stopping
from kfjob.api.lifecycle import wait as waiting
from kfjob.api.logs import event_poller
from kfjob.api.logs import event_stream as following
from kfjob.api.master import cache, discover
from kfjob.api.settings import Settings, settings_here
from kfjob.api.target import Target, find_target
from kfjob.backends import folder
from kfjob.backends.base import JobRef, LogRange
from kfjob.common_types import Notify, ignore_notice
from kfjob.errors import KfjobError, NotFound
from kfjob.events import Event, JobPhase, JobSnapshot, KubernetesEvent, LogGap, LogLine, WorkloadStatus
from kfjob.observe.config import ObserveConfig
from kfjob.observe.master import Master
from kfjob.observe.training import Training
from kfjob.observe.view import JobView, reduce, reduce_all

if TYPE_CHECKING:  # specs and plans are pydantic's, which takes longer to import than a question takes to be answered
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.observe.diagnose.diagnosis import Diagnosis
    from kfjob.plan import JobPlan
    from kfjob.spec.job import JobSpec
    from kfjob.spec.source import LoadedSpec

STILL_FRESH = 0.5
"""Seconds for which the look that `attach` took answers the next question."""


@dataclass(frozen=True)
class Run:
    """One launch of one job. Every question is answered by a fresh look; the first one may use that of `attach`."""

    target: Target
    ref: JobRef
    config: ObserveConfig
    kept: archive.Archived | None = None  # the job is gone, this is what is left of it
    _attached: list[tuple[float, JobSnapshot]] = field(default_factory=list, repr=False, compare=False)

    @property
    def name(self) -> str:
        """Of the job."""
        return self.ref.name

    @property
    def launch(self) -> str:
        """The id of this launch."""
        return self.ref.launch

    @property
    def logs_folder(self) -> Path | None:
        """Where the logs are files on this machine; None on a cluster."""
        if self.kept:
            return self.kept.place
        if self.target.name != "local":
            return None
        return folder.launch_folder(self.target.settings.state / "local", self.ref.namespace, self.name, self.launch)

    def describe(self) -> dict[str, Any]:
        """Where the job is, for machines."""
        return {
            "job": self.ref.name,
            "namespace": self.ref.namespace,
            "backend": self.ref.backend,
            "launch": self.ref.launch,
            "uid": self.ref.uid,
        }

    def snapshot(self) -> JobSnapshot:
        """The job and its pods as they are now.

        Raises:
            NotFound: it is gone.
        """
        if self.kept:
            return self.kept.snapshot()
        if self._attached:
            looked, found = self._attached.pop()
            if time.monotonic() - looked < STILL_FRESH:
                return found
        return self.target.look(self.name)

    def view(self, *, recorded: bool = False) -> JobView:
        """All that can be known now from the job's state and its logs; with `recorded` from the cluster's events too."""
        view = views.look(self._reader, self.ref, self.snapshot(), self.config, previous=self.kept is not None)
        with suppress(KfjobError):  # they only explain
            view = reduce_all(view, self.events() if recorded else ())
        return view

    def master(self, *, wait: float = 0.0, fresh: bool = False) -> Master:
        """The pod that prints progress, and how we know; wait up to so many seconds for evidence.

        What was confirmed a moment ago is told again while pods and containers are the same, unless it must be `fresh`.

        Raises:
            NoEvidence: there is no evidence.
            WaitTimeout: there is none after `wait` seconds.
        """
        if self.kept:
            return views.find_master(self.view, self.name, timeout=wait)
        known = None if fresh else cache.recall(self.target, self.name)
        if known and known.uid == self.ref.uid:
            return known.master
        seen: list[JobSnapshot] = []
        answer = views.find_master(lambda: self._likely(seen), self.name, timeout=wait)
        cache.remember(self.target, seen[-1], answer, self.config)
        return answer

    def masters(self, *, every: float = 2.0) -> Iterator[Master]:
        """Who prints progress, told anew whenever it is another pod or is better known, until the job has ended.

        It is asked every so many seconds.
        """
        told = None
        while True:
            seen: list[JobSnapshot] = []
            try:
                answer = self.view().master if self.kept else self._likely(seen).master
            except NotFound:
                return
            if isinstance(answer, Master) and (answer.pod, answer.confidence) != told:
                told = (answer.pod, answer.confidence)
                yield answer
            if self.kept or seen[-1].job.phase.ended:
                return
            time.sleep(every)

    def _likely(self, seen: list[JobSnapshot]) -> JobView:
        """As much of the view as tells who prints; the snapshot it began with is put into `seen`."""
        seen.append(self.snapshot())
        return discover.find(self._reader, self.ref, seen[-1], self.config)

    def progress(self) -> Training:
        """How far training is: step, loss, speed and the curve so far."""
        return self.view().training

    def diagnose(self) -> Diagnosis:
        """What went wrong first, what followed from it, and what to do; reads all logs."""
        from kfjob.api.diagnose import examine  # many patterns are compiled there

        return examine(self).diagnosis

    def report(self) -> str:
        """The job as one HTML page that needs nothing else: curves, timeline, diagnosis, pods, spec; reads all logs."""
        from kfjob.api.report import report

        return report(self)

    def logs(self, pod: str, wanted: LogRange | None = None) -> Iterator[LogLine | LogGap]:
        """Lines of one pod's log; all that is there now, if nothing else is wanted."""
        return self._reader.logs(self.ref, pod, wanted or LogRange())

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """What the cluster's controllers wrote down of the job, oldest first; the cluster forgets it after an hour.

        Raises:
            NotFound: the job is gone.
        """
        return self._reader.events(self.ref)

    def follow(self) -> Iterator[tuple[JobView, Event]]:
        """Every event with the view after it, until the job has ended. Leaving the loop lets the job go on.

        Of the lines of the logs those come that the view or a diagnosis can use, one a second of the others, and the last.

        Raises:
            JobStopped: the job went over a limit of its `watchdog`, and was stopped.
        """
        from kfjob.observe.prefilter import prefilter_factory  # with what diagnosis looks for, which most commands do not need

        view = JobView(config=self.config)
        backend, line_filter = self.target.backend, prefilter_factory(self.config, diagnosis=True)
        with event_poller.joined(following.events(backend, self.ref, line_filter=line_filter), backend, self.ref) as events:
            for event in events:
                view = reduce(view, event)
                yield view, event
                limits.enforce(self.target, self.name, view)

    def wait(self, *, timeout: float | None = None) -> JobPhase:
        """Wait for the end; how it ended.

        Raises:
            WaitTimeout: it goes on after `timeout` seconds.
            JobStopped: it went over a limit of its `watchdog`, and was stopped.
        """
        if self.kept:
            return self.kept.snapshot().job.phase
        return waiting.wait(self.target, self.ref, self.config, timeout=timeout)

    def stop(self, *, timeout: float = stopping.STOP_TIMEOUT) -> Path | None:
        """End the job and free its name; the folder of its archive."""
        return stopping.stop(self.target, self.name, timeout=timeout)

    def relaunch(self, *, timeout: float = stopping.STOP_TIMEOUT, code: str | Path | None = None) -> Run:
        """Stop the job and submit what is recorded of it again, with the folder `code` put onto its image if one is named."""
        from kfjob.api.images.code_layer import CodeLayer
        from kfjob.api.lifecycle import relaunch as relaunching

        put = CodeLayer(folder=Path(code)) if code else None
        ref, config = relaunching.relaunch(self.target, self.name, timeout=timeout, code=put)
        return Run(self.target, ref, config)

    @property
    def _reader(self) -> archive.Reader:
        return self.kept or self.target.backend


def submit(
    spec: JobSpec | str | Path,
    *,
    backend: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    settings: Settings | None = None,
    strict: bool = False,
    code: str | Path | None = None,
    notify: Notify = ignore_notice,
) -> Run:
    """Start a job; `spec` is a JobSpec or the file of one. `notify` is told what lint warns of; with `strict` it is an error.

    `code` is a folder that is put onto the spec's image; the job runs the image that comes of it.

    Raises:
        SpecError: every problem of the spec.
        AlreadyExists: a job of this name is there; nothing was changed.
    """
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.spec.job import JobSpec
    from kfjob.spec.source import LoadedSpec, Positions

    where = settings or settings_here(backend=backend, context=context, namespace=namespace)
    loaded = LoadedSpec(spec, Positions()) if isinstance(spec, JobSpec) else _read(Path(spec))
    put = CodeLayer(folder=Path(code)) if code else None
    return submit_loaded(loaded, settings=replace(where, strict=where.strict or strict), code=put, notify=notify)


def submit_loaded(
    loaded: LoadedSpec, *, settings: Settings, code: CodeLayer | None = None, notify: Notify = ignore_notice
) -> Run:
    """`submit` for a spec that was read from a text, so that problems can be put to their place in it."""
    target, plan = _plan(loaded, settings, notify)
    if code:
        from kfjob.api.images.code_layer import add_code_layer
        from kfjob.spec.source import LoadedSpec

        spec = add_code_layer(loaded.spec, plan, code, target, notify=notify)
        target, plan = _plan(LoadedSpec(spec, loaded.positions), settings, ignore_notice)
    from kfjob.api.images import own_pull_secret
    from kfjob.api.images.check import check_image

    check_image(target, plan, notify=notify)
    own_pull_secret.apply_pull_secret(target, plan)
    return Run(target, target.backend.submit(plan), observe_config.of_plan(plan))


def apply_loaded(loaded: LoadedSpec, *, settings: Settings, notify: Notify = ignore_notice) -> Run:
    """Change the live job to what the spec says, where that is possible in place. The launch stays the same.

    Raises:
        NotFound: there is no such job.
        Refused: the change needs a relaunch.
    """
    target, plan = _plan(loaded, settings, notify)
    live = target.get(plan.name)
    plan = _resolved(target, loaded, launch=live.launch)
    return Run(target, target.backend.apply(plan), observe_config.of_plan(plan))


def from_folder(path: Path, *, settings: Settings) -> Run:
    """A Run over a folder of saved logs: what it can answer, it answers; there is nothing to stop or to wait for."""
    kept, target = archive.Archived(path), Target(settings, "local", "default")
    snapshot = kept.snapshot()
    return Run(target, stopping.ref_of(target, snapshot), observe_config.of_snapshot(snapshot), kept)


def _read(file: Path) -> LoadedSpec:
    from kfjob.spec.source import load_spec

    try:
        return load_spec(file.read_text(encoding="utf-8"), file=str(file))
    except OSError as err:
        raise NotFound(f"spec `{file}` cannot be read", cause=str(err)) from err


def _plan(loaded: LoadedSpec, settings: Settings, notify: Notify) -> tuple[Target, JobPlan]:
    from kfjob.api.planning import linted

    target = find_target(settings, notify=notify)
    plan = _resolved(target, loaded)
    return replace(target, namespace=plan.namespace), linted(loaded, plan, settings=settings, notify=notify)


def _resolved(target: Target, loaded: LoadedSpec, *, launch: str | None = None) -> JobPlan:
    from kfjob.api.context import plan_context
    from kfjob.api.specs.render import resolve_at

    return resolve_at(loaded.spec, loaded.positions, plan_context(target.settings, target.name, launch=launch))
