"""The view of a job as it is now, from its state and the heads and tails of its logs."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from kfjob.api.excerpts import mark_newest, read_excerpt, read_previous_excerpt
from kfjob.api.reader import JobReader, open_view
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import KfjobError
from kfjob.joblog.events import Tick
from kfjob.joblog.view.job_view import JobView
from kfjob.joblog.view.reduction import reduce_all

THREADS = 16
"""Logs to read at the same time."""


def read_view(reader: JobReader, *, with_events: bool = False, pattern: str | None = None) -> JobView:
    """Return what the job's state and its logs show now; with `with_events`, also what the cluster's controllers recorded.

    `pattern` replaces the job's own pattern of progress lines.

    Raises:
        NotFound: the job is gone.
    """
    snapshot = reader.snapshot()
    unread = (replace(pod, container_id="") for pod in snapshot.pods)  # the log of an earlier container comes first
    view = reduce_all(open_view(reader, pattern=pattern), (snapshot.job, *unread))
    read_all = partial(map_parallel, threads=THREADS, name="logs")
    earlier = list(read_all(lambda pod: read_previous_excerpt(reader, pod), snapshot.pods))
    for lines in earlier:
        view = reduce_all(view, lines)
    view = reduce_all(view, snapshot.pods)
    newest = read_all(lambda pod: read_excerpt(reader, pod), snapshot.pods)
    for before, events in zip(earlier, newest, strict=True):
        view = reduce_all(view, map(mark_newest, events) if before else events)
    view = replace(advance_to_now(view, snapshot.observed), store=snapshot.store, relaunches=snapshot.relaunches)
    view = replace(view, guard_decision=snapshot.guard_decision)
    with suppress(KfjobError):  # events only explain
        view = reduce_all(view, reader.events() if with_events else ())
    return view


def advance_to_now(view: JobView, observed: int | None = None) -> JobView:
    """Return the view after everything was read; that of a running job has the present time, which shows a stall.

    A bundle has the time when it was written, `observed`.
    """
    return reduce_all(view, [Tick(time=observed or time.time_ns())] if view.phase else [])
