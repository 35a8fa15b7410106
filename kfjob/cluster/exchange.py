"""Limit the time and the size of every response of the API server. No other module of this backend waits for a response.

A response arrives in a daemon thread. So a name server, a TLS handshake or a server that sends one byte per second never keeps
a caller waiting beyond these limits, and Ctrl-C ends a command at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from msgspec import Struct

from kfjob.base.concurrency import Task, Watchdog
from kfjob.base.units import MIB
from kfjob.cluster.errors import ConnectionLost
from kfjob.cluster.requests import Request
from kfjob.cluster.transport import Stream, Transport


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of every response."""

    body_bytes: int = 256 * MIB
    """Size of a complete response without its compression; a list of 5000 pods has 60 MiB."""
    error_bytes: int = MIB
    """Size of an error response."""
    complete_seconds: float = 60.0
    """Timeout of a complete response, from the name lookup to the last byte."""
    open_seconds: float = 60.0
    """Timeout of the start of a stream."""
    log_seconds: float = 900.0
    """Timeout of a log that is not followed."""


DEFAULT_LIMITS = Limits()
T = TypeVar("T")


class Response(Struct, frozen=True):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Exchanger:
    """Sends requests and receives their responses within limits."""

    def __init__(self, transport: Transport, limits: Limits, *, host: str) -> None:
        """`host` names the server to a user who waits for it."""
        self._transport = transport
        self._waits_for = f"the API server `{host}`"
        self.limits = limits

    def call(self, request: Request, *, read_timeout: float) -> Response:
        """Return the complete response, of any status.

        Raises:
            ConnectionLost: no complete response arrives within the limits.
        """
        arrival = _Arrival(self._transport, request, read_timeout)
        return arrival.wait(self._read, self.limits.complete_seconds, waits_for=self._waits_for)

    def open(self, request: Request, *, read_timeout: float, total_seconds: float | None = None) -> Stream | Response:
        """Return the response as a stream that ends after `total_seconds`; if its status is not 2xx, the complete response.

        Raises:
            ConnectionLost: the response does not begin within the limits.
        """

        def receive(stream: Stream) -> Stream | Response:
            return stream if is_success(stream.status) else self._read(stream)

        arrival = _Arrival(self._transport, request, read_timeout)
        response = arrival.wait(receive, self.limits.open_seconds, waits_for="")
        if isinstance(response, Response) or total_seconds is None:
            return response
        return _LimitedStream(response, total_seconds)

    def _read(self, stream: Stream) -> Response:
        is_error = not is_success(stream.status)
        limit = self.limits.error_bytes if is_error else self.limits.body_bytes
        body = bytearray()
        try:
            for piece in stream.chunks():
                body += piece
                if len(body) > limit and is_error:
                    break
                if len(body) > limit:
                    raise ConnectionLost(f"the response is larger than {limit // MIB} MiB", sent=True, permanent=True)
        finally:
            stream.close()
        return Response(stream.status, stream.headers, bytes(body[:limit]))


def is_success(status: int) -> bool:
    """Return whether the server executed the request."""
    return 200 <= status < 300  # noqa: PLR2004


class _Arrival:
    """One response that arrives in a thread of its own, and can be given up."""

    def __init__(self, transport: Transport, request: Request, read_timeout: float) -> None:
        self._transport = transport
        self._request = request
        self._read_timeout = read_timeout
        self._stream: Stream | None = None
        self._is_given_up = False
        self._lock = threading.Lock()

    def wait(self, receive: Callable[[Stream], T], seconds: float, *, waits_for: str) -> T:
        """Return what `receive` makes of the response, in at most `seconds`."""
        task = Task(lambda: receive(self._open()), name="request")
        try:
            return task.result(timeout=seconds, waits_for=waits_for)
        except TimeoutError:
            self._give_up()
            raise ConnectionLost(f"no complete answer in {seconds:g} s", sent=True, timed_out=True) from None

    def _open(self) -> Stream:
        stream = self._transport.open(self._request, read_timeout=self._read_timeout)
        with self._lock:
            self._stream = stream
            is_given_up = self._is_given_up
        if is_given_up:
            stream.close()
            raise ConnectionLost("the answer came too late", sent=True, timed_out=True)
        return stream

    def _give_up(self) -> None:
        with self._lock:
            self._is_given_up = True
            stream = self._stream
        if stream:
            stream.shut()


class _LimitedStream:
    """A stream that ends after a time."""

    def __init__(self, stream: Stream, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds
        self._watchdog = Watchdog(seconds, stream.shut)
        self.status = stream.status
        self.headers = stream.headers

    def chunks(self) -> Iterator[bytes]:
        try:
            yield from self._stream.chunks()
        except ConnectionLost:
            self._check()
            raise
        self._check()

    def _check(self) -> None:
        if self._watchdog.expired:
            raise ConnectionLost(f"no complete answer in {self._seconds:g} s", sent=True, timed_out=True)

    def shut(self) -> None:
        self._stream.shut()

    def close(self) -> None:
        self._watchdog.close()
        self._stream.close()
