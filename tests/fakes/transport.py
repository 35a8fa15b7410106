"""A transport without a network."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from kfjob.base.http import ConnectionLost, Limits, Stream
from kfjob.cluster.requests import Request


class FakeStream(Struct):
    """A scripted response. A `ConnectionLost` among the pieces breaks the connection there."""

    status: int = 200
    pieces: Iterable[bytes | ConnectionLost] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False

    def chunks(self) -> Iterator[bytes]:
        """Yield the pieces in order."""
        for piece in self.pieces:
            if isinstance(piece, ConnectionLost):
                raise piece
            yield piece

    def shut(self) -> None:
        """Do nothing: no thread waits here."""

    def close(self) -> None:
        """Record the call."""
        self.closed = True


class FakeTransport:
    """Calls `answer` for the response to every request, and records the requests. A `ConnectionLost` is raised."""

    def __init__(self, answer: Callable[[Request], Stream | ConnectionLost]) -> None:
        """`answer` is called from the thread that sends."""
        self.requests: list[Request] = []
        self._answer = answer
        self._lock = threading.Lock()

    def open(self, request: Request, limits: Limits) -> Stream:  # noqa: ARG002 - the protocol's
        """Return the scripted response."""
        with self._lock:
            self.requests.append(request)
        response = self._answer(request)
        if isinstance(response, ConnectionLost):
            raise response
        return response

    def open_websocket(self, request: Request) -> Any:
        """Return the scripted response, which must be a socket."""
        with self._lock:
            self.requests.append(request)
        return self._answer(request)

    def close(self) -> None:
        """Do nothing: no stream waits."""


def reply(body: Any, status: int = 200) -> FakeStream:
    """Return a response with a JSON body; text stays text."""
    return FakeStream(status=status, pieces=[body.encode() if isinstance(body, str) else json.dumps(body).encode()])


def refused(status: int, reason: str, message: str, **details: Any) -> FakeStream:
    """Return a response with the API's `Status` object of a failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason, "message": message}
    return reply(body | ({"details": details} if details else {}), status)
