"""Send requests with retries: which requests are repeated, for how long, and how each failure becomes an error of kfjob."""

from __future__ import annotations

import random
import threading
import time
from http import HTTPStatus
from typing import Any

from msgspec import Struct, ValidationError, convert

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import BackendError, KfjobError
from kfjob.base.parsing import ParseError, ShapeError, decode_json
from kfjob.cluster.errors import ConnectionLost, is_transient, make_error, make_unreachable
from kfjob.cluster.exchange import DEFAULT_LIMITS, Exchanger, Limits, Response, is_success
from kfjob.cluster.requests import Request
from kfjob.cluster.responses import find_shape
from kfjob.cluster.transport import Stream, Transport
from kfjob.objects.reading import Malformed
from kfjob.redaction import cut_text

CONTACT_SECONDS = 10.0
"""Timeout of the first contact with an API server; a server that takes longer counts as unreachable."""
RESPONSE_SECONDS = 40.0
"""Timeout of the response to a change; webhooks may take 30 s."""
OUTAGE_SECONDS = 300.0
"""Outage of an API server that an open stream survives; an upgrade of the control plane takes minutes."""
SHORT_STREAM_SECONDS = 1.0


class Backoff(Struct, frozen=True, kw_only=True):
    """The time before a retry: it doubles, with random jitter so that many clients do not return at once."""

    first: float = 0.2
    most: float = 5.0
    attempts: int = 4  # in all, for one call

    def delay(self, attempt: int) -> float:
        """Return the seconds to wait after `attempt` failures."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 16)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class Client:
    """One API server."""

    def __init__(
        self, transport: Transport, *, host: str, backoff: Backoff | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        """`host` names the server in errors."""
        self.host = host
        self.backoff = backoff or Backoff()
        self.limits = limits
        self._transport = transport
        self._exchanger = Exchanger(transport, limits, host=host)
        self._closed = threading.Event()

    def call(self, request: Request, *, shape: Any = None) -> JsonObject:
        """Return the response as JSON, checked by the shape of its resource. With `shape`, only the fields that it names.

        Raises:
            KfjobError: any error that `errors` makes; `Unreachable` within 10 s.
        """
        started = time.monotonic()
        attempt = 1
        while True:
            outcome = self._send(request)
            is_late = time.monotonic() - started > CONTACT_SECONDS / 2
            delay = retry_delay(request, outcome, attempt, self.backoff)
            if delay is None or is_late or not self.pause(delay):
                return self._decode(request, outcome, shape)
            attempt += 1

    def open(self, request: Request, *, read_timeout: float, total_seconds: float | None = None) -> Stream:
        """Return the response as a stream. It is not retried: the reader of a stream knows where to resume.

        `read_timeout` limits the seconds between two pieces, `total_seconds` those until the end of the stream.

        Raises:
            ConnectionLost: the server did not answer.
            KfjobError: any error that `errors` makes.
        """
        response = self._exchanger.open(request, read_timeout=read_timeout, total_seconds=total_seconds)
        if isinstance(response, Response):
            raise make_error(request, response.status, response.body)
        return response

    def pause(self, seconds: float) -> bool:
        """Wait, but not longer than until the client is closed. Return whether it is still open."""
        return not self._closed.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """End every stream and every wait, in all threads."""
        self._closed.set()
        self._transport.close()

    def _send(self, request: Request) -> Response | ConnectionLost:
        read_timeout = CONTACT_SECONDS - 1 if request.method == "GET" else RESPONSE_SECONDS
        try:
            return self._exchanger.call(request, read_timeout=read_timeout)
        except ConnectionLost as lost:
            return lost

    def _decode(self, request: Request, outcome: Response | ConnectionLost, shape: Any) -> JsonObject:
        if isinstance(outcome, ConnectionLost):
            raise make_unreachable(outcome, self.host) from outcome
        if not is_success(outcome.status):
            raise make_error(request, outcome.status, outcome.body)
        try:
            response: JsonObject = decode_json(outcome.body, shape or JsonObject)
            if shape is None:
                convert(response, find_shape(request))
        except (ParseError, ValidationError) as err:
            raise self._make_malformed(request, outcome.body, err) from err
        return response

    def _make_malformed(self, request: Request, body: bytes, err: Exception) -> BackendError:
        if isinstance(err, ShapeError | ValidationError) and body.lstrip().startswith(b"{"):
            return Malformed(f"the API server `{self.host}` sent {request.resource} that kfjob cannot read", cause=str(err))
        excerpt = cut_text(body[:4096].decode(errors="replace"), 200) or "its response is empty"
        return BackendError(f"`{self.host}` does not answer as a Kubernetes API server does", cause=excerpt)


class RetryPolicy:
    """When to open a stream again that has ended or failed, and when to give up."""

    def __init__(self, client: Client) -> None:
        """Begin without failures."""
        self._client = client
        self._backoff = Backoff(most=10.0)
        self._failures = 0
        self._opened = self._last_success = time.monotonic()

    def begin(self) -> None:
        """Record the next attempt to open the stream."""
        self._opened = time.monotonic()

    def success(self) -> None:
        """Record that data came. It ends the backoff only if the stream is no short one, against busy loops."""
        self._last_success = time.monotonic()
        if self._last_success - self._opened >= SHORT_STREAM_SECONDS:
            self._failures = 0

    def ended(self) -> None:
        """Record the end of the stream. A short one counts as a failure."""
        self._failures += 1
        self.success()

    def failure(self, err: ConnectionLost | KfjobError) -> None:
        """Record that the stream broke, or could not be opened.

        Raises:
            KfjobError: no data came for `OUTAGE_SECONDS`.
        """
        self._failures += 1
        if time.monotonic() - self._last_success > OUTAGE_SECONDS:
            raise (make_unreachable(err, self._client.host) if isinstance(err, ConnectionLost) else err) from err

    def pause(self) -> None:
        """Wait before the next attempt, longer after each failure."""
        if self._failures:
            self._client.pause(self._backoff.delay(self._failures))


def retry_delay(request: Request, outcome: Response | ConnectionLost, attempt: int, backoff: Backoff) -> float | None:
    """Return the seconds to wait before `request` is sent again; None if `outcome` is final.

    A create is retried only if the server certainly did not execute it: it was not sent, or flow control rejected it (429).
    """
    if attempt >= backoff.attempts:
        return None
    if isinstance(outcome, ConnectionLost):
        is_final = outcome.permanent or outcome.timed_out or (outcome.sent and not request.repeatable)
        return None if is_final else backoff.delay(attempt)
    is_rejected = outcome.status == HTTPStatus.TOO_MANY_REQUESTS
    if not is_transient(outcome.status) or not (request.repeatable or is_rejected):
        return None
    retry_after = outcome.headers.get("retry-after", "")
    server_delay = min(float(retry_after), CONTACT_SECONDS / 2) if retry_after.isascii() and retry_after.isdecimal() else 0.0
    return max(backoff.delay(attempt), server_delay)
