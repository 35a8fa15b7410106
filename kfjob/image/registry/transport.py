"""Send requests to a registry, with TLS, proxies and retries."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from kfjob.errors import UsageError
from kfjob.image.registry.endpoints import Endpoint
from kfjob.image.registry.errors import (
    RETRIED_STATUSES,
    Operation,
    RetryableError,
    is_retryable,
    make_connection_error,
    make_response_error,
)

_MAX_CONNECTIONS = 8  # per host, open for the next request
_MAX_PAUSE = 20.0
_MAX_RETRY_AFTER = 60.0
_MAX_ERROR_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long and how often a request is tried. Times are in seconds."""

    attempts: int = 6
    first_pause: float = 0.5
    connect_timeout: float = 10.0
    read_timeout: float = 120.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self, failures: int, *, retry_after: float = 0.0) -> None:
        """Wait before the next try: a random part of a span that doubles each time, but at least `retry_after`."""
        span = min(_MAX_PAUSE, self.first_pause * 2 ** (failures - 1))
        self.sleep(max(min(retry_after, _MAX_RETRY_AFTER), random.uniform(0, span)))  # noqa: S311 - only to spread the load


DEFAULT_RETRIES = RetryPolicy()
BRIEF_RETRIES = RetryPolicy(attempts=2, connect_timeout=4.0, read_timeout=15.0)
"""For requests that delay another command, such as a submit."""

Response = urllib3.BaseHTTPResponse


class Transport:
    """A pool of connections to an endpoint, and to the addresses to which it redirects."""

    def __init__(self, endpoint: Endpoint, retries: RetryPolicy) -> None:
        self.endpoint, self.retries = endpoint, retries
        timeout = urllib3.Timeout(connect=retries.connect_timeout, read=retries.read_timeout)
        pool = {"ssl_context": _make_ssl_context(endpoint), "retries": False, "timeout": timeout, "maxsize": _MAX_CONNECTIONS}
        host, scheme = urlsplit(endpoint.url).hostname or "", urlsplit(endpoint.url).scheme
        proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        self._pool = urllib3.ProxyManager(proxy, **pool) if proxy else urllib3.PoolManager(**pool)  # type: ignore[arg-type]

    def send(
        self, operation: Operation, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        """Send a request once, and return the response. It does not follow redirects.

        Raises:
            RetryableError: there was no response, or one after which the request may be repeated.
            Unreachable: the registry's certificate is not trusted.
        """
        try:
            response = self._pool.request(method, url, headers=headers, body=body, redirect=False, preload_content=not stream)
        except (urllib3.exceptions.HTTPError, OSError) as err:
            error = make_connection_error(operation, err)
            if isinstance(err, OSError) or is_retryable(err):
                raise RetryableError(error) from err
            raise error from err
        if response.status in RETRIED_STATUSES:
            content = response.read(_MAX_ERROR_BYTES) if stream else response.data
            response.release_conn()
            retry_after = _parse_seconds(response.headers.get("Retry-After"))
            raise RetryableError(make_response_error(operation, response.status, content), retry_after=retry_after)
        return response

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _make_ssl_context(endpoint: Endpoint) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        for authority in endpoint.authorities:
            context.load_verify_locations(cafile=str(authority))
        if endpoint.certificate:
            context.load_cert_chain(*map(str, endpoint.certificate))
    except (OSError, ssl.SSLError) as err:
        raise UsageError(f"a certificate for `{endpoint.host}` cannot be read", cause=str(err)) from err
    if not endpoint.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _parse_seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0  # the date form is ignored
