"""`Run`, the handle of the Python API to one launch of a job. Each method calls the function that the CLI calls."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from kfjob.api.html_page import HtmlPage
from kfjob.api.logs.merge import read_logs, take_last
from kfjob.api.logs.selection import PodSelection
from kfjob.api.master.cache import find_master
from kfjob.api.master.discover import watch_masters
from kfjob.api.reader import ArchiveReader, JobReader, LiveReader
from kfjob.api.settings import STOP_TIMEOUT
from kfjob.api.view import read_view
from kfjob.backends.base import LogRange
from kfjob.base.common_types import JsonMapping, Notify, ignore_notice
from kfjob.base.errors import JobFailed, JobStopped, KfjobError, NotFound, UsageError
from kfjob.joblog.events import Event, JobPhase, JobSnapshot, KubernetesEvent, LogGap, LogLine, WorkloadStatus
from kfjob.joblog.master.evidence import Master
from kfjob.joblog.progress.training import Training
from kfjob.joblog.view.job_view import JobView
from kfjob.redaction import Redactor, cut_text

if TYPE_CHECKING:
    from kfjob.api.images.code_layer import CodeLayer
    from kfjob.joblog.diagnose.diagnosis import Diagnosis


class Run:
    """One launch of a job, as `submit`, `attach` or `Run.relaunch` return it.

    Every method reads the job again. The methods raise errors of `kfjob.base.errors`; `Unreachable` and `Forbidden` are
    possible everywhere, `NotFound` means that the job is gone.
    """

    def __init__(self, reader: LiveReader | ArchiveReader) -> None:
        """Take the job that `reader` reads. Users get a Run from `submit` or `attach`."""
        self._reader: LiveReader | ArchiveReader = reader

    def __repr__(self) -> str:
        """Return one line: name, backend, namespace and launch."""
        ref = self._reader.ref
        state = "archived" if self._reader.archived else f"{ref.backend}/{ref.namespace}"
        return f"<Run {ref.name} ({state}, launch {ref.launch or 'unknown'})>"

    def _repr_html_(self) -> str:
        """Return the state of the job and its loss curve for a notebook."""
        from kfjob.report.sections import render_curve  # imports Jinja2

        curve, redactor = "", Redactor(self._reader.secrets)
        try:
            view = self.status()
            state, curve = redactor.text(view.headline), render_curve(view.training, redact=redactor.text)
        except KfjobError as err:
            state = err.title
        return f"<b>{escape(self.name)}</b> {escape(state)}<br><small>{escape(repr(self))}</small>{curve and f'<br>{curve}'}"

    @property
    def name(self) -> str:
        """The job's name."""
        return self._reader.ref.name

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return self._reader.ref.namespace

    @property
    def backend(self) -> str:
        """`kubernetes` or `local`."""
        return self._reader.ref.backend

    @property
    def launch(self) -> str:
        """The id of this launch; "" for a job that kfjob did not submit."""
        return self._reader.ref.launch

    def status(self) -> JobView:
        """Return what the job's state, its logs and the cluster's events show now: phase, pods, training, problems."""
        return read_view(self._reader, with_events=True)

    def snapshot(self) -> JobSnapshot:
        """Return the present state of the job and its pods, without reading logs."""
        return self._reader.snapshot()

    def master(self, *, timeout: float = 0.0, fresh: bool = False) -> Master:
        """Return the pod that prints progress, and the evidence. With a `timeout` (seconds), wait for evidence.

        A confirmed answer is cached while pods and containers are the same, unless the answer must be `fresh`.

        Raises:
            NoEvidence: nothing shows which pod prints progress.
            WaitTimeout: after `timeout` seconds there is still no evidence.
        """
        return find_master(self._reader, timeout=timeout, fresh=fresh)

    def masters(self, *, interval: float = 2.0) -> Iterator[Master]:
        """Yield the pod that prints progress, again whenever another pod takes over, until the job has ended.

        `interval` is the number of seconds between two searches.
        """
        return watch_masters(self._reader, interval=interval)

    def progress(self) -> Training:
        """Return the progress of training: step, loss, speed and the curve so far."""
        return read_view(self._reader).training

    def diagnose(self) -> Diagnosis:
        """Return what failed first, what followed from it, and what to do; reads all logs."""
        from kfjob.api.diagnose import examine  # compiles many patterns

        return examine(self._reader).diagnosis

    def report(self) -> HtmlPage:
        """Return the job as one HTML page: curves, timeline, diagnosis, pods, spec; reads all logs. `save` writes it."""
        from kfjob.api.report import make_report

        return HtmlPage(make_report(self._reader))

    def archive(self, file: str | Path | None = None) -> Path:
        """Write the state, the logs, the events and the spec to one `.zip` without secrets, and return its path.

        `file` is the path, by default `JOB-LAUNCH.zip` in the current folder.
        """
        from kfjob.api.lifecycle.bundle import write_bundle

        return write_bundle(self._reader, Path(file) if file else None).file

    def logs(
        self, pod: str | None = None, *, tail: int | None = None, previous: bool = False, include: str | None = None
    ) -> Iterator[LogLine | LogGap]:
        """Return the lines that exist now, of one pod or of all pods merged by time.

        Args:
            pod: name of the pod; None reads all pods.
            tail: number of lines of each pod, of those that match `include`.
            previous: read the container before the last restart.
            include: a regular expression of RE2; only lines that match it.

        Raises:
            NotFound: the job has no such pod, or no pod has a log.
            UsageError: `include` is not a regular expression of RE2.
        """
        includes = _compile_filter(include)
        selection = PodSelection(pods=(pod,)) if pod else PodSelection()
        lines = read_logs(self._reader, selection, LogRange(tail=None if includes else tail, previous=previous))
        if includes is None:
            return lines
        if tail is not None:
            return iter(take_last(lines, includes, tail))
        return (line for line in lines if isinstance(line, LogGap) or includes(line.text))

    def events(self) -> list[KubernetesEvent | WorkloadStatus]:
        """Return what the cluster's controllers recorded about the job, oldest first. A cluster keeps it for an hour."""
        return self._reader.events()

    def follow(self) -> Iterator[tuple[JobView, Event]]:
        """Yield every event with the view after it, until the job has ended. Leaving the loop does not stop the job.

        Every log line and every state of a pod is an event. `changes` yields fewer views.

        Raises:
            JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
        """
        from kfjob.api.lifecycle.wait import follow_job

        return follow_job(_require_live(self._reader))

    def changes(self) -> Iterator[JobView]:
        """Yield the view whenever the job's state, step or loss has changed, until the job has ended.

        Raises:
            JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
        """
        line = ""
        for view, _ in self.follow():
            if (newest := repr(view)) != line:
                line = newest
                yield view

    def wait(self, *, timeout: float | None = None, check: bool = False, goal: str = "ended") -> JobPhase:
        """Wait until the job has ended and return its phase. A terminal or a notebook shows a progress line on stderr.

        Args:
            timeout: seconds; None waits without a limit.
            check: raise an error if the job has ended without success.
            goal: with `running` or `progress`, wait only until all pods run, or until the first line of training progress.

        Raises:
            UsageError: there is no such goal.
            WaitTimeout: the job continues after `timeout` seconds.
            JobStopped: the job exceeded a limit of its `watchdog` and was stopped.
            JobFailed: with `check`, the job has failed; the error holds the diagnosis.
        """
        reader = self._reader
        phase = _wait(reader, timeout, goal) if isinstance(reader, LiveReader) else reader.snapshot().job.phase
        if check and phase.ended and phase is not JobPhase.SUCCEEDED:
            raise self._failure(phase)
        return phase

    def execute(
        self, command: list[str], *, pod: str | None = None, rank: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in a pod: that of a name, of a global rank, or the one that prints the progress.

        The result has the exit code (`returncode`), `stdout` and `stderr`.

        Raises:
            NotFound: the job has no such pod or rank.
            NoEvidence: nothing shows which pod prints the progress.
            Refused: the pod does not run, or the command cannot be started.
            Forbidden: the user lacks the right to run commands in pods.
        """
        from kfjob.api.execute import capture

        return capture(_require_live(self._reader), command, pod=pod, rank=rank)

    def stop(self, *, timeout: float = STOP_TIMEOUT) -> Path | None:
        """Stop the job, remove it and return the folder of its archive, which this Run reads from then on."""
        from kfjob.api.lifecycle.stop import stop

        reader = _require_live(self._reader)
        folder = stop(reader.target, self.name, timeout=timeout, uid=reader.ref.uid)
        if folder:
            self._reader = ArchiveReader(folder, reader.target)
        return folder

    def scale(self, nodes: int) -> None:
        """Change the number of nodes of an elastic job while it runs.

        Raises:
            UsageError: the job is not elastic, or kfjob did not submit it from a spec.
            SpecError: the number is not within the limits of `elastic`.
        """
        from kfjob.api.lifecycle.control import scale

        reader = _require_live(self._reader)
        scale(reader.target, self.name, nodes, uid=reader.ref.uid)

    def suspend(self, *, timeout: float = STOP_TIMEOUT) -> None:
        """Remove the job's pods until `resume`; their logs go to the archive first.

        Raises:
            UsageError: the job runs on this machine, is in a queue, or kfjob did not submit it from a spec.
            WaitTimeout: its pods still exist after `timeout` seconds.
        """
        from kfjob.api.lifecycle.control import suspend

        reader = _require_live(self._reader)
        suspend(reader.target, self.name, timeout=timeout, uid=reader.ref.uid)

    def resume(self) -> None:
        """Create the pods of a suspended job again.

        Raises:
            UsageError: as `suspend`.
        """
        from kfjob.api.lifecycle.control import resume

        reader = _require_live(self._reader)
        resume(reader.target, self.name, uid=reader.ref.uid)

    def relaunch(
        self,
        *,
        timeout: float = STOP_TIMEOUT,
        code: str | Path | None = None,
        changes: JsonMapping | None = None,
        start: int | str | None = None,
        avoid_nodes: list[str] | None = None,
        notify: Notify = ignore_notice,
    ) -> Run:
        """Stop the job, submit its recorded spec again and return the new launch; `code` is a folder to add to the image.

        `changes` are fields of the spec with their new values, such as `{"train.max_steps": 2000}`; `notify` receives every
        difference to the last launch. `submit(…, replace=True)` starts another spec of the job. The training goes on from its
        newest checkpoint, or begins at `start`: the step of a checkpoint, or "none" (step 0). This launch uses none of the
        nodes `avoid_nodes`.

        Raises:
            SpecError: the changed spec has problems; the job was not stopped.
            UsageError: `start` does not fit the job, or `avoid_nodes` is a text; the job was not stopped.
        """
        from kfjob.api.lifecycle.relaunch import relaunch
        from kfjob.api.lifecycle.spec_change import SpecChange

        if isinstance(avoid_nodes, str):  # its letters would be names of nodes
            raise UsageError("`avoid_nodes` is not a list", hint=f"write `avoid_nodes={[avoid_nodes]}`")
        uid, target = self._reader.ref.uid, self._reader.target
        assignments = tuple(f"{field}={json.dumps(value)}" for field, value in (changes or {}).items())
        begin = "" if start is None else str(start)
        change = SpecChange(assignments=assignments, start=begin) if assignments or begin else None
        self._reader.snapshot()  # raises NotFound if a later launch has the job's name
        layer, avoid = make_code_layer(code), tuple(avoid_nodes or ())
        job = relaunch(target, self.name, timeout=timeout, code=layer, change=change, avoid=avoid, uid=uid, notify=notify)
        return Run(job)

    def _failure(self, phase: JobPhase) -> KfjobError:
        if phase is JobPhase.STOPPED:
            return JobStopped(f"job `{self.name}` was stopped before it ended", hint=f"`kfjob relaunch {self.name}`")
        diagnosis = self.diagnose()
        cause = diagnosis.first_cause
        hint = cause.remedy if cause and cause.remedy else f"`kfjob logs {self.name}` shows the logs"
        return JobFailed(f"job `{self.name}` has failed", cause=cause.title if cause else diagnosis.headline, hint=hint)


def _wait(reader: LiveReader, timeout: float | None, goal: str) -> JobPhase:
    from kfjob.api.lifecycle.wait import wait_for

    interactive = (sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules
    if not interactive:
        return wait_for(reader, goal, timeout=timeout)
    width, redactor = 0, Redactor(reader.secrets)

    def show(view: JobView) -> None:
        nonlocal width
        line = cut_text(redactor.text(f"{reader.ref.name}: {view.headline}"), 120)
        sys.stderr.write(f"\r{line:<{width}}")
        width = len(line)

    phase = wait_for(reader, goal, timeout=timeout, on_view=show)
    sys.stderr.write("\n")
    return phase


def _require_live(reader: JobReader) -> LiveReader:
    if isinstance(reader, LiveReader):
        return reader
    name = reader.ref.name
    raise NotFound(f"job `{name}` is gone, only its archive is left", hint=f"`kfjob relaunch {name}` starts it again")


def make_code_layer(code: str | Path | None) -> CodeLayer | None:
    """Return the layer for a folder of code; None without a folder."""
    from kfjob.api.images.code_layer import CodeLayer

    return CodeLayer(folder=Path(code)) if code else None


def _compile_filter(include: str | None) -> Callable[[str], bool] | None:
    from kfjob.base.patterns import Pattern, PatternError

    if include is None:
        return None
    pattern = Pattern(include)
    try:
        pattern.check()
    except PatternError as err:
        raise UsageError(f"`{include}` is not a regular expression", cause=str(err), hint=err.hint) from err
    return lambda text: pattern.search(text) is not None
