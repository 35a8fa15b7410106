"""Wait until a job has ended."""

from __future__ import annotations

import time

from kfjob.api import follow
from kfjob.backends.base import Backend, JobRef
from kfjob.errors import WaitTimeout
from kfjob.events import JobChanged, JobPhase


def wait(backend: Backend, ref: JobRef, *, timeout: float | None = None) -> JobPhase:
    """Return how the job ended.

    Raises:
        WaitTimeout: it had not ended after `timeout` seconds; it goes on.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    phase = JobPhase.PENDING
    for event in follow.events(backend, ref, logs=False):
        if isinstance(event, JobChanged):
            phase = event.phase
        if phase.ended:
            return phase
        if deadline is not None and time.monotonic() > deadline:
            raise WaitTimeout(f"job `{ref.name}` has not ended after {timeout:g} s", cause=f"it is {phase}", hint="it goes on")
    return phase
