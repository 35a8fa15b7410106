"""Send requests over HTTP. `requests` makes them; `objects` and `errors` interpret the responses.

Tests replace the `Transport` with `fake.FakeTransport`.
"""

from __future__ import annotations

import json
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlencode

from kfjob.cluster.errors import ConnectionLost, map_exception
from kfjob.cluster.requests import Request

CONNECT_SECONDS = 3.0
"""Timeout of a connection to one address of a host; a name with three addresses fails after 9 s."""
CONNECTIONS = 1024
"""Open connections to an API server; each followed pod holds one."""
CHUNK_BYTES = 64 * 1024
ENCODINGS = frozenset({"", "identity", "gzip"})
"""Encodings of a response that are decoded. A list of encodings (`gzip, gzip`) would multiply its size with each."""


class Stream(Protocol):
    """The response to one request: status and headers at once, the body as it arrives."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in pieces of any size.

        Raises:
            ConnectionLost: the connection is lost, or no data came for too long.
        """

    def shut(self) -> None:
        """End `chunks`, also while another thread waits in it. Any thread may call this."""

    def close(self) -> None:
        """Release the connection; the body may be unread. Only the reading thread may call this."""


class Transport(Protocol):
    """A connection pool for one API server. Methods are called from several threads at once."""

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        """Send `request` and return the response, of any status. `read_timeout`: seconds between two pieces.

        Raises:
            ConnectionLost: the server did not answer.
        """

    def close(self) -> None:
        """End every stream, also those in which another thread waits."""


class Credentials(Protocol):
    """The user's credentials as HTTP headers. Methods are called from several threads at once."""

    def headers(self) -> Mapping[str, str]:
        """Return the headers for the next request; tokens expire."""

    def renew(self, rejected: Mapping[str, str]) -> None:
        """Read the credentials again, unless another thread has: the server rejected these headers.

        Raises:
            KfjobError: the credentials cannot be read.
        """


class PooledTransport:
    """The connection pool of the `kubernetes` package (urllib3), with the authentication of its configuration."""

    def __init__(self, pool: Any, host: str, credentials: Credentials) -> None:
        """`pool` is a `urllib3.PoolManager`."""
        self._pool = pool
        self._host = host.rstrip("/")
        self._credentials = credentials
        self._open: weakref.WeakSet[_PooledStream] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        """Send `request` and wait for status and headers; repeat it once if the credentials have expired."""
        headers = self._credentials.headers()
        stream = self._send(request, headers, read_timeout)
        if stream.status == HTTPStatus.UNAUTHORIZED:  # the server executed nothing, so any request may be repeated
            stream.close()
            self._credentials.renew(headers)
            stream = self._send(request, self._credentials.headers(), read_timeout)
        with self._lock:
            self._open.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise ConnectionLost("this backend was closed", sent=True, permanent=True)
        return stream

    def _send(self, request: Request, credentials: Mapping[str, str], read_timeout: float) -> _PooledStream:
        from urllib3 import Timeout

        body = None if request.body is None else json.dumps(request.body).encode()
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "kfjob", **credentials}
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
            raise map_exception(err) from err
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
        if (encoding := self.headers.get("content-encoding", "identity").lower()) not in ENCODINGS:
            self.close()
            raise ConnectionLost(f"the response has the encoding `{encoding[:40]}`, which was not requested", sent=True)

    def chunks(self) -> Iterator[bytes]:
        try:
            yield from self._response.stream(CHUNK_BYTES, decode_content=True)
        except Exception as err:
            raise map_exception(err) from err

    def close(self) -> None:
        self._response.close()  # a connection with an unread body cannot be used again
        self._response.release_conn()

    def shut(self) -> None:
        """Wake the reading thread; closing alone would leave it waiting."""
        try:
            self._response.shutdown()
        except (OSError, ValueError, RuntimeError):  # the stream has ended
            return


def add_keepalive(options: list[tuple[int, int, int | bytes]]) -> list[tuple[int, int, int | bytes]]:
    """Return socket options with keep-alive probes: load balancers drop a silent log stream after minutes (AWS: 350 s)."""
    probes = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            probes.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return [*options, *probes]
