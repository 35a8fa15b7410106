"""The processes of the ranks of a local job, and whether they run, as /proc shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kfjob.backends import folder
from kfjob.joblog.events import JobSnapshot, ProcessState, RankProcess
from kfjob.local import proc
from kfjob.local.processes import MARK

LOOK_SECONDS = 3.0
"""Time between two looks at the processes of a job that is watched and prints nothing."""
_STATES = {"T": ProcessState.STOPPED, "t": ProcessState.STOPPED, "D": ProcessState.BLOCKED}


class _Process(Struct, frozen=True):
    pid: int
    parent: int
    pod: str
    rank: int | None  # of a worker; an agent's RANK is that of its node
    state: ProcessState


def add_processes(snapshot: JobSnapshot) -> JobSnapshot:
    """Return the snapshot with the processes of each pod that runs; the same on systems without /proc.

    A pod lists the first process of each rank, or its own first process if no rank is known, and all that do not run.
    """
    if snapshot.job.phase.ended:
        return snapshot
    found = {process.pid: process for process in _find_processes(f"{snapshot.uid}/")}
    pods = tuple(
        replace(pod, processes=tuple(_select(pod.pod, found))) if pod.ready and not pod.phase.ended else pod
        for pod in snapshot.pods
    )
    return replace(snapshot, pods=pods)


class ProcessWatcher:
    """Looks at the processes of a job from time to time, only while its pods print nothing or a process does not run."""

    def __init__(self, interval: float = LOOK_SECONDS) -> None:
        self._interval = interval
        self._next = time.monotonic() + interval
        self._size = -1  # bytes of all logs at the last look
        self._found: dict[str, tuple[RankProcess, ...]] = {}

    def add(self, snapshot: JobSnapshot, launch: Path) -> JobSnapshot:
        """Return the snapshot with the processes of the last look; `launch` is its folder."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval
            size = sum(_read_size(folder.log_path(launch, pod.pod)) for pod in snapshot.pods)
            if size == self._size or self._has_halted():
                self._found = {pod.pod: pod.processes for pod in add_processes(snapshot).pods}
            self._size = size
        pods = (
            replace(pod, processes=self._found.get(pod.pod, ())) if pod.ready and not pod.phase.ended else pod
            for pod in snapshot.pods
        )
        return replace(snapshot, pods=tuple(pods)) if self._found else snapshot

    def _has_halted(self) -> bool:
        return any(process.state is not ProcessState.RUNNING for pod in self._found.values() for process in pod)


def _read_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _select(pod: str, found: dict[int, _Process]) -> Iterator[RankProcess]:
    """Yield the processes to list, by rank."""
    members = [process for process in found.values() if process.pod == pod]
    ranks = [item for item in members if item.rank is not None and _get_rank(found, item.parent) != item.rank]
    first = ranks or [item for item in members if item.parent not in found]
    others = [item for item in members if item not in first and item.state is ProcessState.STOPPED]
    for item in sorted(first + others, key=lambda item: (item.rank is None, item.rank or 0, item.pid)):
        yield RankProcess(pid=item.pid, rank=item.rank, state=item.state)


def _get_rank(found: dict[int, _Process], pid: int) -> int | None:
    return found[pid].rank if pid in found else None


def _find_processes(prefix: str) -> Iterator[_Process]:
    """Yield the processes of a job that have not ended."""
    for pid in proc.list_pids():
        variables = dict(entry.partition(b"=")[::2] for entry in proc.read_environment(pid).split(b"\0"))
        mark = variables.get(MARK.encode(), b"").decode(errors="replace")
        letter, parent = proc.read_state(pid)
        if mark.startswith(prefix) and letter not in {"", "Z", "X"}:
            rank = variables.get(b"RANK", b"") if b"LOCAL_RANK" in variables else b""
            state = _STATES.get(letter, ProcessState.RUNNING)
            yield _Process(pid, parent, mark.removeprefix(prefix), int(rank) if rank.isdigit() else None, state)
