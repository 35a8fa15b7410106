"""What the guard does to a job: write a decision down, replace a launch, and record that it gave a job up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from kfjob.api.lifecycle.relaunch import prepare_relaunch
from kfjob.api.lifecycle.start import start
from kfjob.api.lifecycle.stop import stop
from kfjob.api.prepared import PreparedJob
from kfjob.api.reader import read_live
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import AlreadyExists
from kfjob.guard.decision import Decision
from kfjob.guard.records import write_event
from kfjob.guard.relaunch import begin, complete, prepare, retry
from kfjob.joblog.events import JobSnapshot
from kfjob.objects import api_objects

MAX_ANNOTATION = 500


class Actions:
    """Carries out decisions about the jobs of a cluster or of this machine."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        """`say` receives what the guard's log shows."""
        self._target = target
        self._say = say
        self._has_api_server = target.capabilities.has_api_server

    def write_decision(self, ref: JobRef, decision: Decision) -> None:
        """Write an Event of a job on a cluster; on this machine the guard's log has the decision already."""
        if self._has_api_server:
            write_event(self._target, ref, decision, now=time.time())

    def relaunch(self, live: JobSnapshot, *, history: str, avoid: Sequence[str]) -> None:
        """Replace a launch by the next one, which carries `history` and uses none of the nodes `avoid`, however long it takes.

        On a cluster the API server says first whether it accepts the next launch. A guard of this machine that is killed in
        between leaves a job in the archive, which `kfjob relaunch` starts again.

        Raises:
            SpecError, UsageError, Refused: the next launch is not possible; nothing was changed.
            KfjobError: the backend does not answer; nothing was changed.
        """
        if not self._has_api_server:
            prepared = replace(prepare_relaunch(self._target, live), relaunches=history, file_record=live.spec_file)
            retry(partial(stop, self._target, live.name, uid=live.uid), live.name, self._say)
            retry(partial(self._start, prepared, live), live.name, self._say)
            return
        live = read_live(self._target, live.name, live.uid)  # a person may have changed its spec since it was supervised
        prepared = prepare(self._target, live, history=history, avoid=avoid)
        record = begin(self._target, live, prepared)
        retry(partial(self._complete, record, live), live.name, self._say)

    def remember(self, ref: JobRef, reason: str) -> None:
        """Record on the job why the guard does not relaunch it any more."""
        if self._has_api_server:
            self._target.cluster.annotate(ref, {api_objects.ANNOTATION_DECISION: reason[:MAX_ANNOTATION]})
        else:
            self._target.machine.record_decision(ref, reason)

    def _start(self, prepared: PreparedJob, live: JobSnapshot) -> None:
        try:
            self._report(live, start(prepared).ref.launch)
        except AlreadyExists:
            self._report(live, "")

    def _complete(self, record: JsonObject, live: JobSnapshot) -> None:
        self._report(live, complete(self._target, record))

    def _report(self, live: JobSnapshot, launch: str) -> None:
        """Log the launch that replaces another; "" if a person has started one in the meantime."""
        self._say(f"{live.name}: {f'launch {launch} replaces {live.launch}' if launch else 'replaced by another'}")
