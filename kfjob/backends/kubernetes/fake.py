"""A transport without a network, for tests of this package and of those who build on it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from kfjob.backends.kubernetes.errors import Broken
from kfjob.backends.kubernetes.requests import Request
from kfjob.backends.kubernetes.transport import Stream


class FakeStream(Struct):
    """A scripted answer. A `Broken` among the pieces breaks the connection there."""

    status: int = 200
    pieces: Iterable[bytes | Broken] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    closed: bool = False

    def chunks(self) -> Iterator[bytes]:
        """The pieces, in order."""
        for piece in self.pieces:
            if isinstance(piece, Broken):
                raise piece
            yield piece

    def shut(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True


class FakeTransport:
    """Asks `answer` for the answer to every request, and keeps the requests. A `Broken` is raised."""

    def __init__(self, answer: Callable[[Request], Stream | Broken]) -> None:
        """`answer` is called from the thread that sends."""
        self.requests: list[Request] = []
        self._answer = answer
        self._lock = threading.Lock()

    def open(self, request: Request, *, read_timeout: float) -> Stream:  # noqa: ARG002 - the protocol's
        """Answer `request` as scripted."""
        with self._lock:
            self.requests.append(request)
        answered = self._answer(request)
        if isinstance(answered, Broken):
            raise answered
        return answered

    def close(self) -> None:
        """Nothing to end."""


def reply(body: Any, status: int = 200) -> FakeStream:
    """An answer in JSON; text stays text."""
    return FakeStream(status=status, pieces=[body.encode() if isinstance(body, str) else json.dumps(body).encode()])


def refused(status: int, reason: str, message: str, **details: Any) -> FakeStream:
    """The API's `Status` object of a failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason, "message": message}
    return reply(body | ({"details": details} if details else {}), status)
