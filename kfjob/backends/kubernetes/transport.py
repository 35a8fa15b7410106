"""Sends requests, and nothing else: what they mean is `requests`, what the answers mean is `objects` and `errors`.

`Transport` is the seam for tests: `fake.FakeTransport` stands in its place.
"""

from __future__ import annotations

import json
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from kfjob.backends.kubernetes.errors import Broken, broken
from kfjob.backends.kubernetes.requests import Request

CONNECT_SECONDS = 3.0
"""For each address of the host. A name with three addresses is given up after 9 s."""
CONNECTIONS = 1024
"""Kept open at most. Each followed pod holds one for as long as it is followed."""
CHUNK_BYTES = 64 * 1024
UNAUTHORIZED = 401


class Stream(Protocol):
    """The answer to one request: status and headers at once, the body as it arrives."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]:
        """The body, in pieces of any size.

        Raises:
            Broken: the connection is lost, or nothing came for too long.
        """

    def shut(self) -> None:
        """End `chunks`, also while another thread waits in it. Any thread may."""

    def close(self) -> None:
        """Give the connection back; the body may be unread. For the thread that reads."""


class Transport(Protocol):
    """A way to one API server. Its methods are called from several threads at once."""

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        """Send `request`; every answer that has a status is an answer. `read_timeout`: seconds between two pieces.

        Raises:
            Broken: there is no answer.
        """

    def close(self) -> None:
        """End every stream, also those that another thread is waiting for."""


def read_all(stream: Stream) -> bytes:
    """The whole body."""
    try:
        return b"".join(stream.chunks())
    finally:
        stream.close()


class Credentials(Protocol):
    """What tells the API server who asks. Its methods are called from several threads at once."""

    def headers(self) -> Mapping[str, str]:
        """Asked before every request, since tokens expire."""

    def renew(self, refused: Mapping[str, str]) -> None:
        """The server did not take `refused`: read them anew, unless another thread has.

        Raises:
            KfjobError: there are none any more.
        """


class PooledTransport:
    """One pool of connections of the `kubernetes` package (through urllib3), with the authentication of its configuration."""

    def __init__(self, pool: Any, host: str, credentials: Credentials) -> None:
        """`pool` is a `urllib3.PoolManager`."""
        self._pool = pool
        self._host = host.rstrip("/")
        self._credentials = credentials
        self._open: weakref.WeakSet[_PooledStream] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        """Send `request` and wait for the head of the answer; once more if the credentials have expired."""
        own = self._credentials.headers()
        stream = self._send(request, own, read_timeout)
        if stream.status == UNAUTHORIZED:  # turned away before anything was done: any request may be repeated
            stream.close()
            self._credentials.renew(own)
            stream = self._send(request, self._credentials.headers(), read_timeout)
        with self._lock:
            self._open.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise Broken("this backend was closed", sent=True, final=True)
        return stream

    def _send(self, request: Request, own: Mapping[str, str], read_timeout: float) -> _PooledStream:
        from urllib3 import Timeout

        body = None if request.body is None else json.dumps(request.body).encode()
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "kfjob", **own}
        if body is not None:
            headers["Content-Type"] = request.content_type
        try:
            response = self._pool.request(
                request.method,
                self._host + request.path + ("?" + urlencode(request.query) if request.query else ""),
                body=body,
                headers=headers,
                timeout=Timeout(connect=CONNECT_SECONDS, read=read_timeout),
                retries=False,
                preload_content=False,
            )
        except Exception as err:
            raise broken(err) from err
        return _PooledStream(response)

    def close(self) -> None:
        """End every stream."""
        with self._lock:
            self._closed = True
            streams = list(self._open)
        for stream in streams:
            stream.shut()
        self._pool.clear()


class _PooledStream:
    def __init__(self, response: Any) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}

    def chunks(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(CHUNK_BYTES, decode_content=True)
        except Exception as err:
            raise broken(err) from err

    def close(self) -> None:
        self._response.close()  # an unread body makes the connection useless
        self._response.release_conn()

    def shut(self) -> None:
        """Wake the thread that reads; closing alone would leave it waiting."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):  # it has ended meanwhile
            return


def keepalive(options: list[tuple[int, int, int | bytes]]) -> list[tuple[int, int, int | bytes]]:
    """`options` of a socket, and probes: load balancers forget a silent log stream after some minutes (AWS: 350 s)."""
    wanted = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            wanted.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return [*options, *wanted]
