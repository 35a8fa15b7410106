"""An HTTP server of this machine that receives notifications."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any, Self

from tests.hostile_server import Answer, serve


class Receiver:
    """Collects the JSON that it receives; `status` is its answer."""

    def __init__(self, *, status: int = 200) -> None:
        self._status = status
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._server = self._stack.enter_context(serve(lambda *_: Answer(status=self._status)))
        self.port = int(self._server.url.rpartition(":")[2])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def received(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self._server.received]
