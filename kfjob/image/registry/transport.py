"""Send requests to a registry, with TLS, proxies and retries, and limit the time and the size of every response."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from kfjob.base.concurrency import Task, Watchdog
from kfjob.base.errors import Refused, Unreachable, UsageError
from kfjob.base.parsing import ParseError, read_document
from kfjob.base.units import KIB, MIB
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.errors import (
    RETRIED_STATUSES,
    Operation,
    RetryableError,
    is_retryable,
    make_connection_error,
    make_response_error,
)

_MAX_CONNECTIONS = 8
"""Idle connections to one host that stay open for the next request."""
_MAX_PAUSE_SECONDS = 20.0
"""The longest pause before a request is tried again."""
_MAX_RETRY_AFTER_SECONDS = 60.0
"""Pause that a server can ask for with Retry-After."""
_NOT_SUCCESS = 300
_GRACE_SECONDS = 1.0  # for the watchdog of a body, which ends its thread
DOCUMENT_BYTES = 4 * MIB
"""Size of a response without its compression, unless the request names another; it is the size of a manifest in the
specification."""
ERROR_BYTES = 64 * KIB
"""Size of an error response or a redirect."""
MAX_CERTIFICATE_BYTES = MIB
"""Size of a file with authorities, a certificate or a key; all public authorities have 220 KiB."""
ENCODINGS = frozenset({"", "identity", "gzip"})
"""Encodings of a response that are decoded. A list of encodings (`gzip, gzip`) would multiply its size with each."""
_PIECE = 64 * KIB


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long and how often a request is tried. Times are in seconds."""

    attempts: int = 6
    """Attempts of one request."""
    first_pause: float = 0.5
    """The longest pause before the second try; it doubles from there."""
    connect_timeout: float = 10.0
    """Timeout of a connection to a registry."""
    read_timeout: float = 120.0
    """Timeout of the next part of a response."""
    exchange_timeout: float = 300.0
    """Timeout of a complete response, from the name lookup to the last byte."""
    sleep: Callable[[float], None] = time.sleep

    def wait(self, failures: int, *, retry_after: float = 0.0) -> None:
        """Wait before the next try: a random part of a span that doubles each time, but at least `retry_after`."""
        span = min(_MAX_PAUSE_SECONDS, self.first_pause * 2 ** (failures - 1))
        self.sleep(max(min(retry_after, _MAX_RETRY_AFTER_SECONDS), random.uniform(0, span)))  # noqa: S311 - only to spread the load


DEFAULT_RETRIES = RetryPolicy()
BRIEF_RETRIES = RetryPolicy(attempts=2, connect_timeout=4.0, read_timeout=15.0, exchange_timeout=30.0)
"""For requests that delay another command, such as a submit."""


class Response:
    """A response: its complete body in `data`, or a `stream` that the caller closes."""

    def __init__(self, response: urllib3.BaseHTTPResponse, operation: Operation, timeout: float) -> None:
        """`timeout` is the number of seconds that each piece of a stream may take."""
        self.status = response.status
        self.headers = response.headers
        self.data = b""
        self._response = response
        self._operation = operation
        self._timeout = timeout
        if self.headers.get("Content-Encoding", "").lower() not in ENCODINGS:
            self.close()
            raise Refused(f"cannot {operation.action} `{operation.name}`", cause="the response has an unknown encoding")

    def read(self, limit: int) -> None:
        """Read the body into `data`; of an error or a redirect only its beginning.

        Raises:
            Refused: the body has more than `limit` bytes.
            RetryableError: the connection is lost.
        """
        is_error = self.status >= _NOT_SUCCESS
        limit = ERROR_BYTES if is_error else limit
        body = bytearray()
        try:
            for piece in self._pieces(_PIECE, each=False):
                body += piece
                if len(body) > limit:
                    break
        finally:
            self.close(reuse=len(body) <= limit)
        if len(body) > limit and not is_error:
            raise Refused(f"the response of `{self._operation.name}` is larger than {limit // MIB} MiB")
        self.data = bytes(body[:limit])

    def stream(self, size: int) -> Iterator[bytes]:
        """Yield the body in pieces.

        Raises:
            RetryableError: the connection is lost, or a piece takes too long.
        """
        return self._pieces(size, each=True)

    def close(self, *, reuse: bool = False) -> None:
        """Release the connection; with `reuse`, the body was read to its end."""
        if not reuse:
            self._response.close()
        self._response.release_conn()

    def _pieces(self, size: int, *, each: bool) -> Iterator[bytes]:
        """Yield the pieces; the time is limited for `each` piece, or for all of them."""
        watchdog = Watchdog(self._timeout, partial(_shut, self._response))
        try:
            for piece in self._response.stream(size, decode_content=True):
                if each:
                    watchdog.feed()
                yield piece
        except (urllib3.exceptions.HTTPError, OSError) as err:
            raise _make_late_error(self._operation, self._timeout) if watchdog.expired else _map(self._operation, err) from err
        finally:
            watchdog.close()
        if watchdog.expired:
            raise _make_late_error(self._operation, self._timeout)


class Transport:
    """Connections to an endpoint, and to the addresses to which it redirects.

    The client's certificate and `skip_verify` are for the host of the endpoint alone. Its authorities are trusted for the
    others, too: the token server of a private registry has a private certificate as well.
    """

    def __init__(self, endpoint: Endpoint, retries: RetryPolicy) -> None:
        self.endpoint, self.retries = endpoint, retries
        timeout = urllib3.Timeout(connect=retries.connect_timeout, read=retries.read_timeout)
        pool = {"retries": False, "timeout": timeout, "maxsize": _MAX_CONNECTIONS}
        self._host, scheme = urlsplit(endpoint.url).hostname or "", urlsplit(endpoint.url).scheme
        proxy = None if proxy_bypass(self._host) else getproxies().get(scheme)
        open_pool = partial(urllib3.ProxyManager, proxy) if proxy else urllib3.PoolManager
        others = replace(endpoint, certificate=None, verify=True)
        self._pool = open_pool(ssl_context=_make_ssl_context(endpoint), **pool)  # type: ignore[arg-type]
        self._others = open_pool(ssl_context=_make_ssl_context(others), **pool) if others != endpoint else self._pool  # type: ignore[arg-type]

    def send(
        self,
        operation: Operation,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        stream: bool,
        limit: int = DOCUMENT_BYTES,
    ) -> Response:
        """Send a request once, and return the response: complete, or as a `stream` if it is not an error.

        It does not follow redirects. It waits in a daemon thread, so Ctrl-C ends a command at once.

        Raises:
            RetryableError: there was no response, or one after which the request may be repeated.
            Unreachable: the registry's certificate is not trusted, or the response was not complete in time.
            Refused: the response has more than `limit` bytes.
        """

        def exchange() -> Response:
            response = self._request(operation, method, url, headers, body)
            if not stream or response.status >= _NOT_SUCCESS:
                response.read(limit)
            return response

        try:
            response = Task(exchange, name="registry").result(
                timeout=self.retries.exchange_timeout + _GRACE_SECONDS,
                waits_for="" if stream or body else f"registry `{operation.host}`",
            )
        except TimeoutError:
            raise _make_late_error(operation, self.retries.exchange_timeout) from None
        if response.status in RETRIED_STATUSES:
            retry_after = _parse_seconds(response.headers.get("Retry-After"))
            raise RetryableError(make_response_error(operation, response.status, response.data), retry_after=retry_after)
        return response

    def _request(self, operation: Operation, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        try:
            pool = self._pool if urlsplit(url).hostname == self._host else self._others
            response = pool.request(method, url, headers=headers, body=body, redirect=False, preload_content=False)
        except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError) as err:
            raise _map(operation, err) from err
        return Response(response, operation, self.retries.exchange_timeout)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()
        self._others.clear()


def _map(operation: Operation, err: Exception) -> Exception:
    """Return the error for an exception of urllib3 or of the socket."""
    error = make_connection_error(operation, err)
    return RetryableError(error) if isinstance(err, OSError) or is_retryable(err) else error


def _make_late_error(operation: Operation, seconds: float) -> Unreachable:
    return Unreachable(f"registry `{operation.host}` does not answer", cause=f"no complete answer in {seconds:g} s")


def _shut(response: urllib3.BaseHTTPResponse) -> None:
    """Wake the thread that reads the response."""
    with suppress(OSError, ValueError, RuntimeError):  # the response has ended
        response.shutdown()


def _make_ssl_context(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        for file in (*endpoint.authorities, *(endpoint.certificate or ())):
            read_document(file, max_bytes=MAX_CERTIFICATE_BYTES)  # OpenSSL would wait for a FIFO, and read a device to its end
        for authority in endpoint.authorities:
            context.load_verify_locations(cafile=str(authority))
        if endpoint.certificate:
            certificate, key = map(str, endpoint.certificate)
            context.load_cert_chain(certificate, key, password=_refuse_password)
    except (OSError, ssl.SSLError, ParseError) as err:
        raise UsageError(f"a certificate for `{endpoint.host}` cannot be read", cause=str(err)) from err
    if not endpoint.verify:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the user has asked for it, per registry
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _refuse_password() -> str:
    """Refuse to read the password of a key from the terminal, where OpenSSL waits for it."""
    raise ParseError("the key is encrypted")


def _parse_seconds(text: str | None) -> float:
    return float(text) if text and text.isascii() and text.isdecimal() else 0.0  # the date form is ignored
