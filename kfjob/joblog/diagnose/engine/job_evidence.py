"""What the checks of a whole job read: its view and the history of its pods."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from kfjob.joblog.diagnose.engine.history import JobHistory, Occurrence
from kfjob.joblog.diagnose.rules import BY_ID
from kfjob.joblog.lines.timestamps import Timestamp
from kfjob.joblog.view.job_view import JobView

_AFTER_ALL_LINES = 10**12
"""`order` of an occurrence that no line shows."""

Occurrences = Iterator[Occurrence]


class JobEvidence(Struct, frozen=True):
    """The input of the checks."""

    view: JobView
    history: JobHistory
    disconnects: tuple[Occurrence, ...] = ()  # lost connections of agents and processes that had joined, and did not recover

    def occurrence(
        self, rule: str, *, pod: str = "", timestamp: Timestamp | None = None, evidence: str = "", **values: object
    ) -> Occurrence:
        """Return an occurrence of the rule."""
        history = self.history.pods.get(pod)
        return Occurrence(
            rule=BY_ID[rule],
            pod=pod,
            values={"pod": pod, **{name: str(value) for name, value in values.items()}},
            order=_AFTER_ALL_LINES,
            timestamp=timestamp or Timestamp(time=self.view.now),
            line=history.lines if history and evidence else None,
            evidence=(evidence,) if evidence else (),
        )

    @property
    def age(self) -> int:
        """Nanoseconds since the job was created."""
        job = self.view.job
        return (self.view.now or 0) - job.created if job and job.created and self.view.now else 0
