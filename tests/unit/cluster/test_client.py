"""What is sent again, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kfjob.base.errors import BackendError, KfjobError, NotFound, Unreachable
from kfjob.cluster import requests
from kfjob.cluster.client import Backoff, Client, retry_delay
from kfjob.cluster.errors import ConnectionLost
from kfjob.cluster.fake import FakeStream, FakeTransport, refused, reply
from tests.pytorchjobs import KIND

GET = requests.get("pods", "ml", "p")
CREATE = requests.create(
    {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "llama", "namespace": "ml"}}
)
DELETE = requests.delete_job(KIND, "ml", "llama", "u")
REFUSED = ConnectionLost("connection refused", sent=False)
RESET = ConnectionLost("connection reset", sent=True)
FAST = Backoff(first=0.001)
OBJECT = {"kind": "Pod", "metadata": {"name": "p", "namespace": "ml", "uid": "u"}}


def make(*answers: FakeStream | ConnectionLost) -> tuple[Client, FakeTransport]:
    left = list(answers)
    transport = FakeTransport(lambda _: left.pop(0))
    return Client(transport, host="https://cluster", backoff=FAST), transport


@pytest.mark.parametrize(
    ("request_", "first", "times"),
    [
        (GET, lambda: REFUSED, 2),
        (GET, lambda: RESET, 2),
        (GET, lambda: FakeStream(pieces=[b'{"half', RESET]), 2),
        (GET, lambda: refused(429, "TooManyRequests", "slow down"), 2),
        (GET, lambda: refused(503, "ServiceUnavailable", "starting"), 2),
        (GET, lambda: refused(404, "NotFound", "no"), 1),
        (GET, lambda: ConnectionLost("no answer in time", sent=True, timed_out=True), 1),
        (GET, lambda: ConnectionLost("TLS: CERTIFICATE", sent=False, permanent=True), 1),
        (DELETE, lambda: RESET, 2),
        (CREATE, lambda: REFUSED, 2),
        (CREATE, lambda: RESET, 1),
        (CREATE, lambda: refused(429, "TooManyRequests", "slow down"), 2),
        (CREATE, lambda: refused(500, "InternalError", "failed calling webhook"), 1),
    ],
)
def test_which_requests_are_retried(request_: requests.Request, first: Callable[[], FakeStream | ConnectionLost], times: int):
    client, transport = make(first(), reply(OBJECT))
    if times == 2:
        assert client.call(request_) == OBJECT
    else:
        with pytest.raises(KfjobError):
            client.call(request_)
    assert len(transport.requests) == times


def test_it_is_not_sent_for_ever():
    client, transport = make(*[REFUSED] * 10)
    with pytest.raises(Unreachable, match="connection refused"):
        client.call(GET)
    assert len(transport.requests) == FAST.attempts


def test_a_busy_server_is_an_error_after_the_retries():
    client, _ = make(*[refused(503, "ServiceUnavailable", "etcd is away") for _ in range(4)])
    with pytest.raises(BackendError, match="etcd is away"):
        client.call(GET)


def test_retry_after_is_followed_within_reason():
    def after(seconds: str) -> float | None:
        answer = refused(429, "TooManyRequests", "slow down")
        return retry_delay(GET, _whole(answer, {"retry-after": seconds}), 1, FAST)

    assert after("1") == 1.0
    assert after("3600") == 5.0
    assert (after("soon") or 1.0) < 0.01


def _whole(stream: FakeStream, headers: dict[str, str]):
    from kfjob.cluster.exchange import Response

    return Response(stream.status, headers, b"".join(stream.chunks()))


def test_a_server_that_is_no_api_server_is_an_error():
    client, _ = make(reply("<html>Sign in</html>"))
    with pytest.raises(BackendError, match="does not answer as a Kubernetes API server does"):
        client.call(GET)


def test_every_answer_is_closed():
    streams = [refused(404, "NotFound", "no"), reply(OBJECT)]
    client, _ = make(*streams)
    with pytest.raises(NotFound):
        client.call(GET)
    client.call(GET)
    assert all(stream.closed for stream in streams)


def test_a_closed_client_does_not_wait():
    client, transport = make(*[REFUSED] * 4)
    client.close()
    with pytest.raises(Unreachable):
        client.call(GET)
    assert len(transport.requests) == 1


def test_the_backoff_doubles_up_to_its_bound():
    backoff = Backoff(first=1.0, most=5.0)
    assert all(0.5 <= backoff.delay(1) <= 1.0 for _ in range(20))
    assert all(2.5 <= backoff.delay(attempt) <= 5.0 for attempt in (4, 50, 5000))
