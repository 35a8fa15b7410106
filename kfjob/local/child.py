"""One process of a job: start it with its output in a log file, wait for it, and end it with its own child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kfjob.local import processes
from kfjob.local.log_writer import BAR_SECONDS, LogWriter
from kfjob.local.proc import has_proc, list_running_children
from kfjob.local.processes import Reaper
from kfjob.local.subreaper import reap_orphans
from kfjob.local.volume_mounts import mount_volumes

FAILURE = b"failed (exitcode: "
"""torchrun's agent prints it after a worker has failed (torch/distributed/elastic/multiprocessing/api.py)."""
_COLLECT_SECONDS = 0.05
"""Time between two searches for children that have ended: a program may start and end thousands in a second."""
_DRAIN_SECONDS = 1.0
"""Time that the output of an ended process has to end; only an escaped process keeps the pipe open longer."""


class ExitWatcher:
    """Reports when child processes end."""

    def __init__(self) -> None:
        self._started: set[int] = set()  # processes whose return code has not been read
        self._awaited: dict[subprocess.Popen[bytes], asyncio.Future[int]] = {}
        self._next_collection = 0.0
        self._is_scheduled = False
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._schedule)

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Add a process whose return code will be asked for; other children are orphans of the job."""
        self._started.add(process.pid)

    async def wait(self, process: subprocess.Popen[bytes]) -> int:
        """Return the process's return code, negative for a signal, once it has ended."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._awaited[process] = future
        self._collect()
        return await future

    def _schedule(self) -> None:
        """Look for children that have ended: now, or together with those of the next moment."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_at(self._next_collection, self._collect)

    def _collect(self) -> None:
        self._is_scheduled = False
        self._next_collection = asyncio.get_running_loop().time() + _COLLECT_SECONDS
        for process, future in list(self._awaited.items()):
            if not _has_ended(process):
                continue
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # before `poll` lets the kernel reuse the number
            code = process.poll()
            del self._awaited[process]
            self._started.discard(process.pid)
            if not future.done() and code is not None:
                future.set_result(code)
        reap_orphans(self._started)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reading its return code where the system allows that."""
    if process.returncode is not None or not hasattr(os, "waitid"):
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _start(
    argv: Sequence[str], env: Mapping[str, str], output: int, working_dir: str, mounts: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    """Start a process with mounts; without them if the system refuses them."""

    def start(prepare: Callable[[], None] | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            argv,
            cwd=working_dir or None,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so Ctrl-C in a terminal does not reach it
            preexec_fn=prepare,  # noqa: PLW1509 - the supervisor has one thread
        )

    if mounts:
        with suppress(subprocess.SubprocessError):  # `mount_volumes` has written the reason to the log
            return start(partial(mount_volumes, mounts))
    return start(None)


class ChildProcess:
    """A running process and the processes that it starts: all have its mark in their environment."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        log: Path,
        mark: str,
        reaper: Reaper,
        exits: ExitWatcher,
        working_dir: str = "",
        mounts: Mapping[str, str] | None = None,
        on_failure: Callable[[], None] | None = None,
    ) -> None:
        """Start the process; `on_failure` is called when it prints that one of its workers has failed.

        `mounts` are folders that only the process has at other paths (path -> folder).

        Raises:
            OSError, ValueError: the process cannot be started.
        """
        self._mark = mark
        self._reaper = reaper
        self._exits = exits
        self._reading, writing = os.pipe()
        self._flush: asyncio.TimerHandle | None = None
        self._log_writer = LogWriter(self._reading, log, watched=FAILURE, on_watched=on_failure)
        try:
            self._process = _start(argv, {**env, processes.MARK: mark}, writing, working_dir, mounts)
        except (OSError, ValueError):
            self._close()
            raise
        finally:
            os.close(writing)
        self.pid = self._process.pid
        exits.add(self._process)
        reaper.add(self.pid)

    async def end(self) -> int:
        """Log the output until the process ends; kill what it started; return its return code, negative for a signal."""
        drained = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(self._reading, self._step, drained)
        code = await self._exits.wait(self._process)
        self._kill([])  # as a container ends with its first process
        self._reaper.remove(self.pid)
        await asyncio.wait([drained], timeout=_DRAIN_SECONDS)
        asyncio.get_running_loop().remove_reader(self._reading)
        self._close()
        return code

    @property
    def has_workers(self) -> bool:
        """Whether processes run that this one has started; True on systems where nothing shows that."""
        if not has_proc() or list_running_children(self.pid):
            return True
        return any(pid != self.pid for pid in processes.find_marked(processes.exact_prefix(self._mark)))

    @property
    def lost_lines(self) -> int:
        """The lines of the log that could not be written."""
        return self._log_writer.lost_lines

    @property
    def loss_reason(self) -> str:
        """Why the newest of these lines could not be written, in the system's words; "" without one."""
        return self._log_writer.loss_reason

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended, so that its number still is its own."""
        return self._process.poll() is None

    def terminate(self) -> None:
        """Send SIGTERM to the process alone, as the kubelet does."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process and to all processes that it started."""
        if self.is_running:
            self._kill([self.pid])

    def _kill(self, groups: list[int]) -> None:
        processes.kill(groups, processes.exact_prefix(self._mark))

    def _step(self, drained: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        self._cancel_flush()
        if self._log_writer.step():
            if self._log_writer.has_open_bar:
                self._flush = loop.call_later(BAR_SECONDS, self._log_writer.flush_bar)
        elif not drained.done():
            loop.remove_reader(self._reading)
            drained.set_result(None)

    def _cancel_flush(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None

    def _close(self) -> None:
        self._cancel_flush()
        self._log_writer.close()
        os.close(self._reading)
