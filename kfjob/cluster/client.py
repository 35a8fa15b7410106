"""Send requests: how long each may take, and how each failure becomes an error of kfjob."""

from __future__ import annotations

import threading
import time
from typing import Any

from msgspec import ValidationError, convert
from msgspec.structs import replace

from kfjob.base.common_types import JsonObject
from kfjob.base.concurrency import waiting_for
from kfjob.base.errors import BackendError, KfjobError
from kfjob.base.http import ConnectionLost, Limits, Stream, backoff, is_success, read_response
from kfjob.base.parsing import ParseError, ShapeError, decode_json
from kfjob.base.units import MIB
from kfjob.cluster.errors import WebhookDown, make_error, make_unreachable
from kfjob.cluster.requests import Request
from kfjob.cluster.responses import find_shape
from kfjob.cluster.transport import Transport
from kfjob.objects.reading import Malformed
from kfjob.redaction import cut_text

READS = Limits(start_seconds=10.0, read_seconds=10.0, body_bytes=256 * MIB)
"""A server that takes longer counts as unreachable; a list of 5000 pods has 60 MiB."""
CHANGES = Limits(start_seconds=40.0, read_seconds=40.0)
"""Webhooks may take 30 s."""
STREAMS = Limits(attempts=1)
"""The reader of a stream opens it again, because only the reader knows where to resume."""
OUTAGE_SECONDS = 300.0
"""Outage of an API server that an open stream survives; an upgrade of the control plane takes minutes."""
WEBHOOK_SECONDS = 30.0
"""Time in which a webhook that restarts answers again: nothing was changed, so a request may be repeated."""
SHORT_STREAM_SECONDS = 1.0


class Client:
    """One API server."""

    def __init__(self, transport: Transport, *, host: str) -> None:
        """`host` names the server in errors."""
        self.host = host
        self._transport = transport
        self._closed = threading.Event()

    def call(self, request: Request, *, shape: Any = None) -> JsonObject:
        """Return the response as JSON, checked by the shape of its resource. With `shape`, only the fields that it names.

        Raises:
            KfjobError: any error that `errors` makes; for a read, `Unreachable` within 10 s.
        """
        limits = READS if request.method == "GET" else CHANGES
        try:
            stream = self._transport.open(request, limits)
            response = read_response(stream, limits, waits_for=f"the API server `{self.host}`")
        except ConnectionLost as lost:
            raise make_unreachable(lost, self.host) from lost
        if not is_success(response.status):
            raise make_error(request, response.status, response.body)
        try:
            content: JsonObject = decode_json(response.body, shape or JsonObject)
            if shape is None:
                convert(content, find_shape(request))
        except (ParseError, ValidationError) as err:
            raise self._make_malformed(request, response.body, err) from err
        return content

    def change(self, request: Request) -> JsonObject:
        """Return the response to a create or a change, as `call` does. It is sent again while a webhook does not answer."""
        try:
            return self.call(request)
        except WebhookDown:
            with waiting_for("a webhook of the cluster to answer", WEBHOOK_SECONDS):
                return self._repeat(request)

    def _repeat(self, request: Request) -> JsonObject:
        deadline, attempt = time.monotonic() + WEBHOOK_SECONDS, 1
        while True:
            pause = backoff(attempt, longest=3.0)
            is_last = time.monotonic() + pause >= deadline or not self.pause(pause)
            try:
                return self.call(request)
            except WebhookDown:
                if is_last:
                    raise
            attempt += 1

    def open(self, request: Request, *, read_seconds: float) -> Stream:
        """Return the response as a stream; `read_seconds` limits the time between two pieces.

        Raises:
            ConnectionLost: the server did not answer.
            KfjobError: any error that `errors` makes.
        """
        stream = self._transport.open(request, replace(STREAMS, read_seconds=read_seconds))
        if is_success(stream.status):
            return stream
        response = read_response(stream, STREAMS)
        raise make_error(request, response.status, response.body)

    def open_websocket(self, request: Request) -> Any:
        """Return the response as a `websocket.WebSocket`. Raises what the transport does."""
        return self._transport.open_websocket(request)

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
            self._client.pause(backoff(self._failures, longest=10.0))
