"""What the guard does to a job: write a decision down, replace a launch, and record that it gave a job up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kfjob.api.reader import read_live
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.base.common_types import JsonObject
from kfjob.guard.decision import Decision
from kfjob.guard.records import write_event
from kfjob.guard.relaunch import begin, complete, prepare, retry
from kfjob.joblog.events import JobSnapshot
from kfjob.objects import api_objects

MAX_ANNOTATION = 500


class Actions(Protocol):
    """The guard's hands."""

    def write_decision(self, ref: JobRef, decision: Decision) -> None:
        """Write down what the guard has decided about a launch, and why."""

    def relaunch(self, live: JobSnapshot, *, history: str, avoid: Sequence[str]) -> None:
        """Replace a launch by the next one, which carries `history` and uses none of the nodes `avoid`.

        Raises:
            SpecError, UsageError, Refused: the next launch is not possible; nothing was changed.
            KfjobError: the backend does not answer; nothing was changed.
        """

    def remember(self, ref: JobRef, reason: str) -> None:
        """Record on the job why the guard does not relaunch it any more."""


class ClusterActions:
    """Implements `Actions` for a job of a cluster."""

    def __init__(self, target: Target, say: Callable[[str], None]) -> None:
        """`say` receives what the guard's log shows."""
        self._target = target
        self._say = say

    def write_decision(self, ref: JobRef, decision: Decision) -> None:
        """Write an Event of the job."""
        write_event(self._target, ref, decision, now=time.time())

    def relaunch(self, live: JobSnapshot, *, history: str, avoid: Sequence[str]) -> None:
        """Ask the API server whether it accepts the next launch, then replace the launch, however long that takes."""
        live = read_live(self._target, live.name, live.uid)  # a person may have changed its spec since it was supervised
        prepared = prepare(self._target, live, history=history, avoid=avoid)
        record = begin(self._target, live, prepared)
        retry(lambda: self._complete(record, live), live.name, self._say)

    def _complete(self, record: JsonObject, live: JobSnapshot) -> None:
        launch = complete(self._target, record)
        self._say(f"{live.name}: {f'launch {launch} replaces {live.launch}' if launch else 'replaced by another'}")

    def remember(self, ref: JobRef, reason: str) -> None:
        """Annotate the job."""
        self._target.cluster.annotate(ref, {api_objects.ANNOTATION_DECISION: reason[:MAX_ANNOTATION]})
