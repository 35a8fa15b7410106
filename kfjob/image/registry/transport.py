"""Requests to one registry: TLS, proxies, and retries with what may go better the next time."""

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

_KEPT = 8  # connections to one host that wait for the next request
_LONGEST_PAUSE = 20.0
_LONGEST_ASKED = 60.0  # what a registry may ask for with Retry-After
_MOST_OF_AN_ERROR = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """How long and how often to try. Times in seconds."""

    attempts: int = 6
    first_pause: float = 0.5
    connect_timeout: float = 10.0
    read_timeout: float = 120.0
    sleep: Callable[[float], None] = time.sleep

    def wait(self, failures: int, *, retry_after: float = 0.0) -> None:
        """Wait before the next try: a random part of a span that doubles each time, and no less than the registry asked for."""
        span = min(_LONGEST_PAUSE, self.first_pause * 2 ** (failures - 1))
        self.sleep(max(min(retry_after, _LONGEST_ASKED), random.uniform(0, span)))  # noqa: S311 - only to spread the load


DEFAULT_RETRIES = RetryPolicy()
BRIEF_RETRIES = RetryPolicy(attempts=2, connect_timeout=4.0, read_timeout=15.0)
"""For a question that something else is waiting for."""


class Transport:
    """One pool of connections to an endpoint (and to where it redirects)."""

    def __init__(self, endpoint: Endpoint, retries: RetryPolicy) -> None:
        self.endpoint, self.retries = endpoint, retries
        timeout = urllib3.Timeout(connect=retries.connect_timeout, read=retries.read_timeout)
        pool = {"ssl_context": _trust(endpoint), "retries": False, "timeout": timeout, "maxsize": _KEPT}
        host, scheme = urlsplit(endpoint.url).hostname or "", urlsplit(endpoint.url).scheme
        proxy = None if proxy_bypass(host) else getproxies().get(scheme)
        self._pool = urllib3.ProxyManager(proxy, **pool) if proxy else urllib3.PoolManager(**pool)  # type: ignore[arg-type]

    def send(
        self, asked: Operation, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, stream: bool
    ) -> Response:
        """Send a request one time. Redirects are answers.

        Raises:
            Broken: there was no answer, or one after which the request may be repeated.
            Unreachable: the registry is not to be trusted.
        """
        try:
            response = self._pool.request(method, url, headers=headers, body=body, redirect=False, preload_content=not stream)
        except (urllib3.exceptions.HTTPError, OSError) as err:
            fault = make_connection_error(asked, err)
            if isinstance(err, OSError) or is_retryable(err):
                raise RetryableError(fault) from err
            raise fault from err
        if response.status in RETRIED_STATUSES:
            body = response.read(_MOST_OF_AN_ERROR) if stream else response.data
            response.release_conn()
            raise RetryableError(
                make_response_error(asked, response.status, body), after=_seconds(response.headers.get("Retry-After"))
            )
        return response

    def close(self) -> None:
        """Give the connections back."""
        self._pool.clear()


Response = urllib3.BaseHTTPResponse


def _trust(endpoint: Endpoint) -> ssl.SSLContext:
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


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() else 0.0  # a date is not worth its parser
