"""Run a command in a pod of a live job: the pod that prints the progress, or that of a name or a global rank."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from subprocess import CompletedProcess

from kfjob.api.logs.selection import PodSelection
from kfjob.api.master.cache import find_master
from kfjob.api.reader import JobReader
from kfjob.api.view import read_view
from kfjob.backends.base import CommandStreams
from kfjob.base.errors import NotFound, Refused
from kfjob.joblog.events import PodChanged, PodPhase


def execute(
    reader: JobReader, command: Sequence[str], streams: CommandStreams, *, pod: str | None = None, rank: int | None = None
) -> int:
    """Run a command in the container of a pod, and return its exit code.

    Without a name and a global rank it is the pod that prints the progress, or the job's only pod.

    Raises:
        NotFound: the job has ended, or it has no such pod or rank.
        NoEvidence: nothing shows which pod prints the progress.
        Refused: the pod does not run, or the command cannot be started.
        Forbidden: the user lacks the right to run commands in pods.
    """
    if reader.archived:
        hint = f"`kfjob relaunch {reader.ref.name}` starts it again"
        raise NotFound(f"job `{reader.ref.name}` is gone, so no command can run in its pods", hint=hint)
    chosen = choose_pod(reader, pod, rank)
    if chosen.phase is not PodPhase.RUNNING:
        cause = chosen.reason or str(chosen.phase)
        hint = f"`kfjob status {reader.ref.name}` shows the pods that run"
        raise Refused(f"pod `{chosen.pod}` does not run, so no command can run in it", cause=cause, hint=hint)
    return reader.target.backend.execute(reader.ref, chosen, command, streams)


def choose_pod(reader: JobReader, pod: str | None, rank: int | None) -> PodChanged:
    """Return the pod of a name or a global rank, else the one that prints the progress."""
    pods = reader.snapshot().pods
    if rank is not None:
        return PodSelection(ranks=((rank, rank),)).select(pods, read_view(reader))[0]
    if pod is None and len(pods) == 1:
        return pods[0]
    return PodSelection(pods=(pod or find_master(reader).pod,)).select(pods)[0]


def capture(
    reader: JobReader, command: Sequence[str], *, pod: str | None = None, rank: int | None = None
) -> CompletedProcess[bytes]:
    """Run a command as `execute` does, without input, and return its exit code and what it has printed."""
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        streams = CommandStreams(stdout=stdout.fileno(), stderr=stderr.fileno())
        code = execute(reader, command, streams, pod=pod, rank=rank)
        stdout.seek(0)
        stderr.seek(0)
        return CompletedProcess([*command], code, stdout.read(), stderr.read())
