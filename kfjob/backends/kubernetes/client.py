"""Requests with patience: what is repeated, how long, and that every failure ends as one of our errors."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any

from msgspec import MsgspecError, Struct, json

from kfjob.backends.kubernetes.errors import Broken, is_passing, refusal, unreachable
from kfjob.backends.kubernetes.requests import Request
from kfjob.backends.kubernetes.transport import Stream, Transport, read_all
from kfjob.errors import BackendError, Unreachable

CONTACT_SECONDS = 10.0
"""Within this the API server has answered, or counts as unreachable."""
ANSWER_SECONDS = 40.0
"""For an answer to a change: webhooks may take 30 s."""
PATIENCE_SECONDS = 300.0
"""How long a stream that was open bears an API server that is away: a control plane's upgrade takes minutes."""
SHORT_SECONDS = 1.0


class Backoff(Struct, frozen=True, kw_only=True):
    """How long to wait before a repetition: doubling, and spread at random so that many clients do not come back at once."""

    first: float = 0.2
    most: float = 5.0
    attempts: int = 4  # in all, for one call

    def delay(self, attempt: int) -> float:
        """Seconds, after `attempt` failures."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 16)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


class Reply(Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Client:
    """One API server, asked with patience."""

    def __init__(self, transport: Transport, *, host: str, backoff: Backoff | None = None) -> None:
        """`host` is what errors call the server."""
        self.host = host
        self.backoff = backoff or Backoff()
        self._transport = transport
        self._closed = threading.Event()

    def call(self, request: Request, *, shape: Any = dict[str, Any]) -> dict[str, Any]:
        """The answer to `request`, as the API's JSON; of a `shape` (a TypedDict) with no more than it names.

        Raises:
            KfjobError: any of those that `errors` makes; `Unreachable` within 10 s.
        """
        started = time.monotonic()
        attempt = 1
        while True:
            outcome = self._once(request)
            late = time.monotonic() - started > CONTACT_SECONDS / 2
            delay = repeat_after(request, outcome, attempt, self.backoff)
            if delay is None or late or not self.pause(delay):
                return self._conclude(request, outcome, shape)
            attempt += 1

    def open(self, request: Request, *, read_timeout: float) -> Stream:
        """The answer to `request` as it arrives. Not repeated: who reads a stream knows where to resume.

        Raises:
            Broken: there is no answer.
            KfjobError: any of those that `errors` makes.
        """
        stream = self._transport.open(request, read_timeout=read_timeout)
        if not _is_success(stream.status):
            raise refusal(request, stream.status, read_all(stream))
        return stream

    def pause(self, seconds: float) -> bool:
        """Wait, at most until the client is closed. Returns whether to go on."""
        return not self._closed.wait(seconds)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def close(self) -> None:
        """End every stream and every wait, in all threads."""
        self._closed.set()
        self._transport.close()

    def _once(self, request: Request) -> Reply | Broken:
        read_timeout = CONTACT_SECONDS - 1 if request.method == "GET" else ANSWER_SECONDS
        try:
            stream = self._transport.open(request, read_timeout=read_timeout)
            return Reply(stream.status, stream.headers, read_all(stream))
        except Broken as lost:
            return lost

    def _conclude(self, request: Request, outcome: Reply | Broken, shape: Any) -> dict[str, Any]:
        if isinstance(outcome, Broken):
            raise unreachable(outcome, self.host) from outcome
        if not _is_success(outcome.status):
            raise refusal(request, outcome.status, outcome.body)
        try:
            answer: dict[str, Any] = json.decode(outcome.body, type=shape)
        except MsgspecError as err:
            shown = outcome.body[:200].decode(errors="replace")
            raise BackendError(f"`{self.host}` does not answer as a Kubernetes API server does", cause=shown) from err
        return answer


class Patience:
    """Opening a stream again and again: how long to wait in between, and when to give up."""

    def __init__(self, client: Client) -> None:
        """Now is the last time that all was well."""
        self._client = client
        self._backoff = Backoff(most=10.0)
        self._failures = 0
        self._well = time.monotonic()

    def success(self) -> None:
        """Something came."""
        self._failures, self._well = 0, time.monotonic()

    def ended(self, opened: float) -> None:
        """The stream opened at `opened` (monotonic) came to its end. Too soon counts, or we might ask in a tight loop."""
        self._well = time.monotonic()
        self._failures = self._failures + 1 if self._well - opened < SHORT_SECONDS else 0

    def failure(self, err: Broken | Unreachable | BackendError) -> None:
        """It broke, or could not be opened.

        Raises:
            Unreachable, BackendError: nothing came for `PATIENCE_SECONDS`.
        """
        self._failures += 1
        if time.monotonic() - self._well > PATIENCE_SECONDS:
            raise (unreachable(err, self._client.host) if isinstance(err, Broken) else err) from err

    def pause(self) -> None:
        """Wait as long as the failures so far ask for."""
        if self._failures:
            self._client.pause(self._backoff.delay(self._failures))


def repeat_after(request: Request, outcome: Reply | Broken, attempt: int, backoff: Backoff) -> float | None:
    """Seconds to wait before `request` is sent again; None: `outcome` is final.

    A create is repeated only if it was surely not carried out: never sent, or turned away by the server's flow control (429).
    """
    if attempt >= backoff.attempts:
        return None
    if isinstance(outcome, Broken):
        hopeless = outcome.final or outcome.waited or (outcome.sent and not request.repeatable)
        return None if hopeless else backoff.delay(attempt)
    if not is_passing(outcome.status) or not (request.repeatable or outcome.status == 429):  # noqa: PLR2004
        return None
    asked = outcome.headers.get("retry-after", "")
    return max(backoff.delay(attempt), min(float(asked), CONTACT_SECONDS / 2) if asked.isdigit() else 0.0)


def _is_success(status: int) -> bool:
    return 200 <= status < 300  # noqa: PLR2004
