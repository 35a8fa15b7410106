"""The job's own etcd as the supervisor runs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from kfjob.backends import folder
from kfjob.backends.local.child import Child, Exits
from kfjob.backends.local.launch_spec import EtcdSpec
from kfjob.backends.local.processes import Guard

CONTAINER = "etcd"
START_SECONDS = 30.0
_END_SECONDS = 5.0
_POLL_SECONDS = 0.05


class EtcdServer:
    """A running etcd; its log is kept like a pod's."""

    def __init__(self, spec: EtcdSpec, *, uid: str, place: Path, exits: Exits, guard: Guard) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        log = folder.log_path(place, spec.pod, CONTAINER)
        self._port = spec.port
        self._child = Child(spec.argv, {}, log=log, mark=f"{uid}/{spec.pod}", guard=guard, exits=exits)
        self.ended = asyncio.create_task(self._child.end())

    async def serves(self, gives_up: Callable[[], bool]) -> bool:
        """Wait until it answers; False: it has ended, it does not answer in time, or the caller has given up."""
        deadline = time.monotonic() + START_SECONDS
        while not self.ended.done() and time.monotonic() < deadline and not gives_up():
            with suppress(OSError, TimeoutError):
                if await asyncio.wait_for(self._is_healthy(), 1):
                    return True
            await asyncio.sleep(_POLL_SECONDS)
        return False

    async def stop(self) -> None:
        """End it; it keeps nothing that anyone needs."""
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
