"""An HTTP server of this machine that receives notifications."""

from __future__ import annotations

import json
from typing import Any, Self

from tests.hostile_server import Answer, serve


class Receiver:
    """Collects the JSON that it receives; `status` is its answer."""

    def __init__(self, *, status: int = 200) -> None:
        self._serving = serve(lambda *_: Answer(status=status))

    def __enter__(self) -> Self:
        self._server = self._serving.__enter__()
        self.port = int(self._server.url.rpartition(":")[2])
        return self

    def __exit__(self, *error: object) -> None:
        self._serving.__exit__(*error)

    @property
    def received(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self._server.received]
