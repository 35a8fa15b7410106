"""Send requests to one API server, with the user's credentials. `requests` makes them; `client` interprets the responses.

Tests replace the `Transport` with `fake.FakeTransport`.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlencode

from kfjob.base.http import ConnectionLost, HttpClient, Limits, Stream
from kfjob.cluster.requests import Request

Dial = Callable[[str, Mapping[str, str]], Any]
"""Opens a `websocket.WebSocket` of a URL with these headers."""
WEBSOCKET_PROTOCOLS = "v5.channel.k8s.io, v4.channel.k8s.io"


class Transport(Protocol):
    """Connections to one API server. Methods are called from several threads at once."""

    def open(self, request: Request, limits: Limits) -> Stream:
        """Send `request` and return the response, of any status.

        Raises:
            ConnectionLost: the server did not answer.
        """

    def open_websocket(self, request: Request) -> Any:
        """Send `request` and return the open `websocket.WebSocket`.

        Raises:
            WebSocketException, OSError: the server refused it or did not answer.
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


class HttpTransport:
    """Sends requests over HTTP."""

    def __init__(self, http: HttpClient, host: str, credentials: Credentials, *, waits_for: str, dial: Dial) -> None:
        """`host` is the address of the API server; `waits_for` names the server to a user who waits for it."""
        self._dial = dial
        self._http = http
        self._host = host.rstrip("/")
        self._waits_for = waits_for
        self._credentials = credentials
        self._open: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._closed = False

    def open(self, request: Request, limits: Limits) -> Stream:
        """Send `request` and wait for status and headers; repeat it once if the credentials have expired."""
        headers = self._credentials.headers()
        stream = self._send(request, headers, limits)
        if stream.status == HTTPStatus.UNAUTHORIZED:  # the server executed nothing, so any request may be repeated
            stream.close()
            self._credentials.renew(headers)
            stream = self._send(request, self._credentials.headers(), limits)
        with self._lock:
            self._open.add(stream)
            closed = self._closed
        if closed:
            stream.close()
            raise ConnectionLost("this backend was closed")
        return stream

    def _send(self, request: Request, credentials: Mapping[str, str], limits: Limits) -> Stream:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", **credentials}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return self._http.open(
            request.method,
            self._host + _locate(request),
            headers=headers,
            body=None if request.body is None else json.dumps(request.body).encode(),
            limits=limits,
            repeatable=request.repeatable,
            waits_for="" if request.is_stream else self._waits_for,
        )

    def open_websocket(self, request: Request) -> Any:
        """Send `request` and return the open websocket."""
        headers = {name.lower(): value for name, value in self._credentials.headers().items()}
        url = self._host.replace("http", "ws", 1) + _locate(request)
        return self._dial(url, {**headers, "sec-websocket-protocol": WEBSOCKET_PROTOCOLS})

    def close(self) -> None:
        """End every stream."""
        with self._lock:
            self._closed = True
            streams = list(self._open)
        for stream in streams:
            stream.shut()
        self._http.close()


def _locate(request: Request) -> str:
    return request.path + ("?" + urlencode(request.query) if request.query else "")
