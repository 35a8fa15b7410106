"""Run a failure check, a program, after a worker has failed: it says whether a restart can cure the failure."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kfjob.backends import folder
from kfjob.local.child import ExitWatcher

MAX_CHECKS = 8
"""Failure checks of one job; later failures only cause restarts."""
MAX_LOG_BYTES = 32 << 20
"""Size of the logs of a job that a failure check searches; a job with more has worked."""


class CheckRunner:
    """Runs the check at most once at a time, and again if a worker has failed meanwhile."""

    def __init__(self, argv: Sequence[str], folder_path: Path, *, exits: ExitWatcher, on_answer: Callable[[str], None]) -> None:
        """`on_answer` receives the reason why a restart is futile. An empty `argv` checks nothing."""
        self._argv = tuple(argv)
        self._folder = folder_path
        self._exits = exits
        self._on_answer = on_answer
        self._remaining = MAX_CHECKS
        self._task: asyncio.Task[None] | None = None
        self._is_outdated = False

    def start(self) -> None:
        """Check the job now, or after the check that runs."""
        if self._task and not self._task.done():
            self._is_outdated = True
        elif self._argv and self._remaining and self._log_bytes() <= MAX_LOG_BYTES:
            self._remaining -= 1
            self._task = asyncio.create_task(self._run())

    def cancel(self) -> None:
        """End a check that runs."""
        if self._task:
            self._task.cancel()

    def _log_bytes(self) -> int:
        return sum(log.stat().st_size for log in folder.find_logs(self._folder).values() if log.exists())

    async def _run(self) -> None:
        self._is_outdated = False
        process = self._start_program()
        self._exits.add(process)
        try:
            await self._exits.wait(process)
        except asyncio.CancelledError:
            process.kill()
            raise
        answer = process.stdout.read() if process.stdout else b""
        if text := answer.decode(errors="replace").strip():
            self._on_answer(text)
        elif self._is_outdated:
            asyncio.get_running_loop().call_soon(self.start)

    def _start_program(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", *self._argv, str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
