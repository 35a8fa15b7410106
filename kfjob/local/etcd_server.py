"""Run the job's own etcd in the supervisor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kfjob.backends import folder
from kfjob.joblog.events import ETCD_CONTAINER
from kfjob.local.child import ChildProcess, ExitWatcher
from kfjob.local.launch_spec import EtcdSpec
from kfjob.local.processes import Reaper

START_SECONDS = 30.0
"""Time that the job's own etcd has to answer after its start."""
_END_SECONDS = 5.0
"""Time that the job's own etcd has to end after a signal."""
_POLL_SECONDS = 0.05


class EtcdServer:
    """A running etcd; its log is written like a pod's."""

    def __init__(self, spec: EtcdSpec, *, uid: str, folder_path: Path, exits: ExitWatcher, reaper: Reaper) -> None:
        """Start the etcd.

        Raises:
            OSError: the program cannot be started.
        """
        log = folder.log_path(folder_path, spec.pod, ETCD_CONTAINER)
        self._port = spec.port
        mark = f"{uid}/{spec.pod}"
        self._child = ChildProcess(spec.argv, {}, log=log, mark=mark, reaper=reaper, exits=exits)
        self.ended = asyncio.create_task(self._child.end())

    async def wait_until_healthy(self, is_cancelled: Callable[[], bool]) -> bool:
        """Wait until the etcd answers; return False if it has ended, does not answer in time, or the wait is cancelled."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ended.done() and time.monotonic() < deadline and not is_cancelled():
            with suppress(OSError, TimeoutError):
                if await asyncio.wait_for(self._is_healthy(), 1):
                    return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    async def stop(self) -> None:
        """End the etcd. Its data is not needed afterwards."""
        self._child.terminate()
        await asyncio.wait([self.ended], timeout=_END_SECONDS)
        self._child.kill()
        await self.ended

    async def _is_healthy(self) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            answer = await reader.read()
        finally:
            writer.close()
        return b'"health":"true"' in answer
