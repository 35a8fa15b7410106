"""Follow one launch of one job: enforce its limits, and act on its failure."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from kfjob.api.lifecycle.archive import archive_job
from kfjob.api.lifecycle.recorded_job import parse_recorded_spec
from kfjob.api.lifecycle.running_archive import RunningArchive
from kfjob.api.lifecycle.survivors import free_survivors
from kfjob.api.lifecycle.wait import follow_job, stop_with_reason
from kfjob.api.reader import open_snapshot, open_view
from kfjob.api.target import Target
from kfjob.base.errors import KfjobError, Refused, SpecError, UsageError
from kfjob.guard.actions import Actions
from kfjob.guard.decision import Action, Decision, decide
from kfjob.guard.facts import collect_facts, extend_history
from kfjob.guard.notifications import Notifier
from kfjob.guard.uploads import ArchiveUploads
from kfjob.joblog.events import NODE_NOT_READY, JobPhase, JobSnapshot, PodPhase, find_host
from kfjob.joblog.view.job_view import GIVEN_UP, LIMIT_EXCEEDED, JobView
from kfjob.joblog.view.watchdog_limits import ExceededLimit, find_exceeded_limit
from kfjob.redaction import Redactor
from kfjob.redaction.structs import redact_struct

START_CHECK_SECONDS = 10.0
"""Time between two diagnoses of a job whose pods wait for something."""
NODE_SECONDS = 60.0
"""Time after which the guard gives up a node that Kubernetes has called not ready, which takes Kubernetes 50 s itself."""
_START_FAULTS = ("Image", "ErrImage", "InvalidImage", "CreateContainer", "FailedCreate", "FailedMount", "Unschedulable")
"""Beginnings of the reasons of pods and events for which a start may never succeed."""


class Supervision:
    """One launch."""

    def __init__(
        self,
        target: Target,
        job: JobSnapshot,
        notifier: Notifier,
        say: Callable[[str], None],
        *,
        uploads: ArchiveUploads | None = None,
    ) -> None:
        """`say` receives what the guard's log shows, and `uploads` copies the archive to S3."""
        self._target = target.change(namespace=job.namespace, job_kind=job.job_kind or None)
        self._job = job
        self._reader = open_snapshot(self._target, job)
        self._ref = self._reader.ref
        self._actions = Actions(self._target, say)
        self._notifier = notifier
        self._say = say
        self._uploads = uploads
        self._view = open_view(self._reader)
        self._next_start_check = time.monotonic() + START_CHECK_SECONDS
        self._lost_since: float | None = None  # when the first of the nodes stopped to answer

    @property
    def view(self) -> JobView:
        """The newest view of the launch, with the relaunches before it."""
        return replace(self._view, relaunches=self._job.relaunches)

    def run(self) -> None:
        """Follow the launch until it has succeeded, is gone, was replaced or was given up.

        A launch that was given up already gets what its guard may not have done: its pods are freed, its archive is completed.

        Raises:
            KfjobError: the cluster does not answer, or refuses; the caller tries again.
        """
        try:
            if self._reader.snapshot().guard_decision:
                self._restore_archive()
                self._end_given_up()
            else:
                self._follow()
        finally:
            self._wake_uploads()

    def _follow(self) -> None:
        view = self._view
        archive = self._open_archive()
        try:
            for view, event in follow_job(self._reader, reads_all=lambda _: archive is not None, enforces_limits=False):
                self._view = view
                if archive:
                    archive.add(view, event)
                if view.phase and view.phase.ended:
                    break
                limit, has_lost_node = find_exceeded_limit(view), self._has_lost_node(view)
                if not limit and not has_lost_node and not self._has_start_fault(view):
                    continue
                if archive:
                    archive.flush()
                if self._act(view, limit, has_lost_node=has_lost_node):
                    return
        finally:
            if archive:
                archive.close()
        if view.phase is JobPhase.FAILED:
            self._act(view, None)
        elif view.phase is JobPhase.SUCCEEDED:
            self._complete_archive()

    def _wake_uploads(self) -> None:
        if self._uploads:
            self._uploads.wake()

    def _complete_archive(self) -> None:
        """Archive what the stream of a job does not have: events, the logs of other containers."""
        if self._ref.capabilities.archives_jobs:
            return
        try:
            with archive_job(self._reader, self._reader.snapshot()):
                pass
        except KfjobError as err:
            self._say(f"{self._ref.name}: its archive is not complete: {err.title}")

    def _open_archive(self) -> RunningArchive | None:
        """Return the archive of a job whose logs are not on this machine."""
        if self._ref.capabilities.archives_jobs:
            return None
        self._restore_archive()
        return RunningArchive(self._job, self._target.settings.archive_folder, notify=self._say)

    def _restore_archive(self) -> None:
        """Fetch what an earlier guard has copied to S3, so that a shorter archive does not replace it."""
        if self._uploads:
            self._uploads.restore(self._job)

    def _has_start_fault(self, view: JobView) -> bool:
        """Return whether it is time to ask the diagnosis why pods do not start."""
        if view.phase is not JobPhase.PENDING or time.monotonic() < self._next_start_check:
            return False
        self._next_start_check = time.monotonic() + START_CHECK_SECONDS
        states = [pod.state for pod in view.pods.values() if pod.state and pod.state.phase is PodPhase.PENDING]
        reasons = [*(state.reason for state in states), *(event.reason for event in view.cluster_events)]
        return any(reason.startswith(_START_FAULTS) for reason in reasons)

    def _has_lost_node(self, view: JobView) -> bool:
        """Return whether a node of a job that needs all its nodes has not answered for so long that it is lost."""
        states = [pod.state for pod in view.pods.values() if pod.state and pod.state.reason == NODE_NOT_READY]
        self._lost_since = (self._lost_since or time.monotonic()) if states else None
        if self._lost_since is None or time.monotonic() - self._lost_since < NODE_SECONDS:
            return False
        return not self._goes_on_without({find_host(state) for state in states})

    def _goes_on_without(self, hosts: set[str]) -> bool:
        """Return whether the job is elastic, and none of the lost hosts holds its rendezvous."""
        spec = parse_recorded_spec(self._job, self._job.spec) if self._job.spec else None
        holds_rendezvous = self._view.config.rendezvous == "c10d" and not hosts.isdisjoint(self._view.config.workers[:1])
        return spec is not None and spec.elastic is not None and not holds_rendezvous

    def _act(self, view: JobView, limit: ExceededLimit | None, *, has_lost_node: bool = False) -> bool:
        """Decide, and carry the decision out. Return whether the guard is done with this launch."""
        facts = collect_facts(self._reader, self._job, view, limit=limit, has_lost_node=has_lost_node)
        decision = decide(facts)
        if decision.action is Action.NOTHING:
            return False
        self._wake_uploads()  # before the launch is replaced
        self._say(f"{self._ref.name}: {decision.action}: {decision.reason}")
        for line in decision.evidence:
            self._say(f"{self._ref.name}:   {line}")
        self._record(decision)
        if decision.action is Action.RELAUNCH and decision.entry is not None:
            self._relaunch(view, decision, extend_history(facts.history, decision.entry, now=time.time_ns()))
        else:
            self._stop(view, decision, reason=LIMIT_EXCEEDED if limit else GIVEN_UP)
        return True

    def _record(self, decision: Decision) -> None:
        self._actions.write_decision(self._ref, decision)
        self._notifier.send(self._ref, decision)

    def _relaunch(self, view: JobView, decision: Decision, history: str) -> None:
        try:
            self._actions.relaunch(self._job, history=history, avoid=decision.avoid)
        except (SpecError, UsageError, Refused) as err:  # a backend that does not answer is asked again
            reason = f"the next launch is refused: {err.title}"
            refusal = Decision(action=Action.STOP, reason=reason, evidence=(err.cause,) if err.cause else ())
            refusal = redact_struct(refusal, Redactor(self._reader.secrets))
            self._say(f"{self._ref.name}: {refusal.reason}")
            self._record(refusal)
            self._stop(view, refusal)

    def _stop(self, view: JobView, decision: Decision, *, reason: str = GIVEN_UP) -> None:
        """Give the job up: remember the decision on the job, and free its pods. A job that has not failed is removed.

        The decision is written first: a guard that is killed, or may not write it, must not take a freed pod for a lost one.
        """
        if view.phase is not JobPhase.FAILED:
            stopped = stop_with_reason(self._target, self._ref, view, decision.reason, reason=reason)
            if stopped and stopped.error.hint:
                self._say(f"{self._ref.name}: {stopped.error.hint}")
            return
        self._actions.remember(self._ref, decision.reason)
        self._end_given_up()

    def _end_given_up(self) -> None:
        """Free the pods of a launch that has failed and was given up, and complete its archive."""
        if freed := free_survivors(self._reader):
            self._say(f"{self._ref.name}: {freed}")
        self._complete_archive()
