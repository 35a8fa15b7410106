"""Wait until a job has ended, and end it if it goes over its limits meanwhile."""

from __future__ import annotations

import time

from kfjob.api.lifecycle import limits
from kfjob.api.logs import event_stream
from kfjob.api.target import Target
from kfjob.backends.base import JobRef
from kfjob.errors import WaitTimeout
from kfjob.events import JobPhase
from kfjob.observe.config import ObserveConfig
from kfjob.observe.view import JobView, reduce


def wait(target: Target, ref: JobRef, config: ObserveConfig, *, timeout: float | None = None) -> JobPhase:
    """Return how the job ended. Logs are read only where a stall is to be seen in them.

    Raises:
        WaitTimeout: it had not ended after `timeout` seconds; it goes on.
        JobStopped: it went over a limit of its `watchdog`, and was stopped.
    """
    from kfjob.observe.prefilter import prefilter_factory  # `run` imports this module, and few commands wait

    deadline = None if timeout is None else time.monotonic() + timeout
    view = JobView(config=config)
    for event in event_stream.events(
        target.backend, ref, logs=config.limits.stall is not None, line_filter=prefilter_factory(config)
    ):
        view = reduce(view, event)
        if view.phase and view.phase.ended:
            return view.phase
        limits.enforce(target, ref.name, view)
        if deadline is not None and time.monotonic() > deadline:
            title = f"job `{ref.name}` has not ended after {timeout:g} s"
            raise WaitTimeout(title, cause=f"it is {view.phase or JobPhase.PENDING}", hint="it goes on")
    return view.phase or JobPhase.PENDING
