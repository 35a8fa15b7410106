"""Logs of several pods as one stream: merged by time in a snapshot, in the order of arrival when they are followed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kfjob.api.funnel import Funnel
from kfjob.api.run import Run
from kfjob.backends.base import LogRange
from kfjob.errors import NotFound
from kfjob.events import LogGap, LogLine

Line = LogLine | LogGap


def read(run: Run, pods: Sequence[str], wanted: LogRange) -> tuple[tuple[str, ...], Iterator[Line]]:
    """The pods that are read (all, if none is named) and their lines.

    Raises:
        NotFound: a named pod is not one of the job's, or has no log.
    """
    known = tuple(pod.pod for pod in run.snapshot().pods)
    for pod in pods:
        if pod not in known:
            raise NotFound(f"job `{run.name}` has no pod `{pod}`", hint=f"its pods: {', '.join(known) or 'none yet'}")
    chosen = tuple(pods) or known
    if len(chosen) == 1:
        return chosen, run.logs(chosen[0], wanted)
    return chosen, _arriving(run, chosen, wanted) if wanted.follow else _merged(run, chosen, wanted)


def _merged(run: Run, pods: Sequence[str], wanted: LogRange) -> Iterator[Line]:
    timed = heapq.merge(*(_in_order(run, pod, wanted) for pod in pods), key=lambda one: one[0])
    return (line for _, line in timed)


def _in_order(run: Run, pod: str, wanted: LogRange) -> Iterator[tuple[int, Line]]:
    """Lines with a time that never falls: a line without one has that of the line before it."""
    last = 0
    with suppress(NotFound):  # a pod that has not started has no log
        for line in run.logs(pod, wanted):
            time = line.time if isinstance(line, LogLine) else line.after
            last = max(last, time or 0)
            yield last, line


def _arriving(run: Run, pods: Sequence[str], wanted: LogRange) -> Iterator[Line]:
    funnel: Funnel[Line] = Funnel(1024)
    for pod in pods:
        funnel.add(run.logs(pod, wanted), f"log-{pod}")
    try:
        yield from (line for line in funnel.items() if line)
    finally:
        funnel.close()
