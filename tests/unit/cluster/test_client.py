"""What a response becomes: an object or an error of kfjob. Retries and limits are in tests/unit/test_http.py."""

from __future__ import annotations

from contextlib import closing

import pytest

from kfjob.base.connections import make_pool, make_tls_context
from kfjob.base.errors import BackendError, KfjobError, NotFound, Unreachable
from kfjob.base.http import ConnectionLost, HttpClient
from kfjob.cluster import requests
from kfjob.cluster.client import Client
from kfjob.cluster.errors import WebhookDown
from kfjob.cluster.transport import HttpTransport
from tests.fakes.transport import FakeStream, FakeTransport, refused, reply
from tests.hostile_server import Answer, json_answer, serve
from tests.pytorchjobs import KIND

GET = requests.get("pods", "ml", "p")
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml", "uid": "u"}}
OBJECT = {"kind": "Pod", "metadata": POD["metadata"]}
RESET = ConnectionLost("connection reset")


def make(*answers: FakeStream | ConnectionLost) -> tuple[Client, FakeTransport]:
    left = list(answers)
    transport = FakeTransport(lambda _: left.pop(0))
    return Client(transport, host="https://cluster"), transport


@pytest.mark.parametrize("lost", [RESET, FakeStream(pieces=[b'{"half', RESET])], ids=["no response", "half a response"])
def test_a_lost_connection_is_unreachable(lost: FakeStream | ConnectionLost):
    client, _ = make(lost)
    with pytest.raises(Unreachable, match="the API server `https://cluster` does not answer") as caught:
        client.call(GET)
    assert caught.value.cause == "connection reset"


@pytest.mark.parametrize("text", ["<html>Sign in</html>", "", "[]", "[" * 100_000, '{"a":' * 100_000, "1" * 6000, "null"])
def test_a_server_that_is_no_api_server_is_an_error(text: str):
    client, _ = make(reply(text))
    with pytest.raises(BackendError) as caught:
        client.call(GET)
    assert "does not answer as a Kubernetes API server does" in caught.value.title
    assert len(str(caught.value)) < 1000


def test_every_answer_is_closed():
    streams = [refused(404, "NotFound", "no"), reply(OBJECT)]
    client, _ = make(*streams)
    with pytest.raises(NotFound):
        client.call(GET)
    client.call(GET)
    assert all(stream.closed for stream in streams)


class NoCredentials:
    def headers(self) -> dict[str, str]:
        return {}

    def renew(self, rejected: object) -> None:
        """Do nothing."""


def connect(url: str) -> Client:
    http = HttpClient(make_pool(url, make_tls_context()))
    return Client(HttpTransport(http, url, NoCredentials(), waits_for="the API server", dial=lambda *_: None), host=url)


@pytest.mark.parametrize("request_", [requests.create(POD), requests.get_job(KIND, "ml", "p")], ids=["create", "get"])
def test_a_create_is_not_repeated_unless_it_was_rejected(request_: requests.Request):
    with serve(lambda *_: Answer(status=500)) as server, closing(connect(server.url)) as client:
        with pytest.raises(KfjobError):
            client.call(request_)
        assert len(server.received) == (1 if request_.verb == "create" else 4)


def test_requests_carry_the_query_and_the_body():
    with serve(lambda *_: json_answer(POD)) as server, closing(connect(server.url)) as client:
        assert client.call(requests.create(POD, dry_run=True)) == POD
    (received,) = server.received
    assert received.path.startswith("/api/v1/namespaces/ml/pods?")
    assert "dryRun=All" in received.path
    assert received.headers["Content-Type"] == "application/json"


def test_a_redirect_is_an_error():
    with serve(lambda *_: Answer(status=302, headers=(("Location", "/elsewhere"),))) as server:
        with closing(connect(server.url)) as client, pytest.raises(KfjobError):
            client.call(GET)
        assert [received.path for received in server.received] == [GET.path]


WEBHOOK_DOWN = (
    'failed calling webhook "v.example.com": failed to call webhook: Post "https://a.b.svc:443/v": connection refused'
)


def test_change_is_sent_again_while_a_webhook_restarts():
    client, transport = make(*(refused(500, "InternalError", WEBHOOK_DOWN) for _ in range(3)), reply(POD))
    assert client.change(requests.create(POD)) == POD
    assert len(transport.requests) == 4


def test_webhook_that_stays_down_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kfjob.cluster.client.WEBHOOK_SECONDS", 0.0)
    client, transport = make(*(refused(500, "InternalError", WEBHOOK_DOWN) for _ in range(2)))
    with pytest.raises(WebhookDown, match=r"webhook `v\.example\.com` does not answer"):
        client.change(requests.create(POD))
    assert len(transport.requests) == 2
