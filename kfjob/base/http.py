"""HTTP for API servers and registries. urllib3 retries, redirects and decodes; this module limits the time and the size.

A response arrives in a daemon thread. So a name server, a TLS handshake or a server that sends one byte per second never keeps
a caller waiting beyond the limits, and Ctrl-C ends a command at once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Protocol

import urllib3
from msgspec import Struct
from urllib3 import exceptions

from kfjob.base.concurrency import Task
from kfjob.base.units import KIB, MIB

ERROR_BYTES = 64 * KIB
"""Size of an error response; the rest is dropped."""
CHUNK_BYTES = 64 * KIB
BUSY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed: the server is busy or fails for a moment."""
_REJECTED_STATUSES = frozenset({429})
"""Statuses that say that the server has not executed the request."""


class ConnectionLost(Exception):
    """The server did not answer, or its response ended too early. The caller makes it an error for users."""

    def __init__(self, cause: str, *, timed_out: bool = False, untrusted: bool = False) -> None:
        """`untrusted`: the server's certificate is not one of the trusted authorities."""
        super().__init__(cause)
        self.cause = cause
        self.timed_out = timed_out
        self.untrusted = untrusted


class Limits(Struct, frozen=True, kw_only=True):
    """How long and how often a request is tried, and the size of its response. Times are in seconds."""

    attempts: int = 4
    pause: float = 0.2
    """The unit of the pause between two attempts; it doubles."""
    max_pause: float = 5.0
    """The longest pause, also of those that a server asks for with Retry-After."""
    connect_seconds: float = 3.0
    """Timeout of a connection to one address of a host; a name with three addresses fails after 9 s."""
    read_seconds: float = 60.0
    """Timeout of the next part of a response."""
    start_seconds: float = 60.0
    """Timeout of status and headers, with all attempts."""
    body_seconds: float = 60.0
    """Timeout of a complete body."""
    body_bytes: int = 4 * MIB
    """Size of a complete body without its compression."""

    def make_retry(self, *, repeatable: bool) -> urllib3.Retry:
        """Return urllib3's policy. A request that is not `repeatable` is sent again only if the server did not execute it."""
        return urllib3.Retry(
            total=self.attempts - 1,
            read=None if repeatable else False,
            other=0,  # such as a certificate that is not trusted
            redirect=5,
            allowed_methods=None,
            status_forcelist=BUSY_STATUSES if repeatable else _REJECTED_STATUSES,
            backoff_factor=self.pause,
            backoff_jitter=self.pause,
            backoff_max=self.max_pause,
            retry_after_max=int(self.max_pause),
            raise_on_status=False,
        )


def backoff(failures: int, *, first: float = 0.2, longest: float = 5.0) -> float:
    """Return the seconds to wait after this many failures; their jitter keeps many clients from returning at once."""
    return min(longest, first * 2.0 ** min(failures - 1, 16)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class Response(Struct, frozen=True):
    """A complete response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


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


def is_success(status: int) -> bool:
    """Return whether the server executed the request."""
    return 200 <= status < 300  # noqa: PLR2004 - HTTP statuses are best known by their numbers


def read_response(stream: Stream, limits: Limits, *, waits_for: str = "") -> Response:
    """Return the complete response, of an error or a redirect only its beginning, and close the stream.

    Raises:
        ConnectionLost: it is not complete in time, or too large.
    """
    task = Task(lambda: _read(stream, limits.body_bytes), name="response")
    try:
        return task.result(timeout=limits.body_seconds, waits_for=waits_for)
    except TimeoutError:
        stream.shut()
        raise _make_late_error(limits.body_seconds) from None


def _read(stream: Stream, max_bytes: int) -> Response:
    is_error = not is_success(stream.status)
    limit = ERROR_BYTES if is_error else max_bytes
    body = bytearray()
    try:
        for piece in stream.chunks():
            body += piece
            if len(body) > limit:
                break
    finally:
        stream.close()
    if len(body) > limit and not is_error:
        raise ConnectionLost(f"the response is larger than {limit // MIB} MiB")
    return Response(stream.status, stream.headers, bytes(body[:limit]))


class HttpClient:
    """A pool of connections. Methods may be called from several threads at once."""

    def __init__(self, pool: urllib3.PoolManager) -> None:
        self._pool = pool

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        limits: Limits,
        body: bytes | None = None,
        repeatable: bool = True,
        redirect: bool = False,
        waits_for: str = "",
    ) -> Stream:
        """Send a request, and return its response, of any status. Credentials do not follow a redirect to another host.

        A long wait is reported under the name `waits_for`.

        Raises:
            ConnectionLost: the server does not answer in time.
        """
        is_late = threading.Event()

        def send() -> _UrllibStream:
            try:
                response = self._pool.request(
                    method,
                    url,
                    body=body,
                    headers={"User-Agent": "kfjob", **headers},
                    timeout=urllib3.Timeout(connect=limits.connect_seconds, read=limits.read_seconds),
                    retries=limits.make_retry(repeatable=repeatable),
                    redirect=redirect,
                    preload_content=False,
                )
            except Exception as err:
                raise map_exception(err) from err
            if is_late.is_set():
                response.close()
            return _UrllibStream(response)

        try:
            return Task(send, name="request").result(timeout=limits.start_seconds, waits_for=waits_for)
        except TimeoutError:
            is_late.set()
            raise _make_late_error(limits.start_seconds) from None

    def close(self) -> None:
        """Close the connections that wait for a request."""
        self._pool.clear()


class _UrllibStream:
    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers

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
        with suppress(OSError, ValueError, RuntimeError):  # the stream has ended
            self._response.shutdown()


def _make_late_error(seconds: float) -> ConnectionLost:
    return ConnectionLost(f"no complete answer in {seconds:g} s", timed_out=True)


def map_exception(err: Exception) -> ConnectionLost:
    """Return the `ConnectionLost` for an exception of urllib3, ssl or the socket. Any other exception is raised again."""
    if isinstance(err, exceptions.MaxRetryError) and isinstance(err.reason, Exception):
        err = err.reason
    text = _format_reason(err)
    match err:
        case exceptions.ProxyError():
            lost = ConnectionLost(f"the proxy does not answer: {_format_reason(err.original_error)}")
        case exceptions.SSLError():
            lost = ConnectionLost(f"TLS: {text}", untrusted="CERTIFICATE" in text.upper())
        case exceptions.NameResolutionError():
            lost = ConnectionLost("the name cannot be resolved")
        case exceptions.NewConnectionError():
            lost = ConnectionLost(text.partition("Failed to establish a new connection: ")[2] or text)
        case exceptions.ConnectTimeoutError():
            lost = ConnectionLost("no connection in time", timed_out=True)
        case exceptions.ReadTimeoutError():
            lost = ConnectionLost("no answer in time", timed_out=True)
        case ValueError():  # of a URL in a configuration or in a redirect
            lost = ConnectionLost(f"not an address: {text}")
        case exceptions.HTTPError() | OSError():
            lost = ConnectionLost(text or type(err).__name__)
        case _:
            raise err
    return lost


def _format_reason(err: BaseException) -> str:
    """Return the message without `<…Connection object at 0x…>: ` at its start, and without a URL's query: it may be signed."""
    text = str(err)
    text = text.partition(">: ")[2] or text.partition("): ")[2] or text
    return text.partition("?")[0]
