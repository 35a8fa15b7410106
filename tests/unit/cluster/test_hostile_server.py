"""Every wait for an API server has an end, whatever the server sends; the work that it causes is bounded."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from kfjob.base.concurrency import Task
from kfjob.base.errors import KfjobError, Unreachable
from kfjob.cluster import cluster_events, requests
from kfjob.cluster.client import Backoff, Client
from kfjob.cluster.exchange import Limits
from kfjob.cluster.transport import PooledTransport
from kfjob.cluster.watch import ObjectWatch
from tests.hostile_server import (
    MEBIBYTE,
    Answer,
    HostileServer,
    Received,
    endless,
    gzip_bomb,
    json_answer,
    refusal,
    serve,
    serve_nothing,
    twice_compressed,
)
from tests.pytorchjobs import KIND

GET = requests.get("pods", "ml", "p")
LOG = requests.pod_log("ml", "p", container="pytorch")
LIMITS = Limits(body_bytes=2 * MEBIBYTE, error_bytes=MEBIBYTE // 8, complete_seconds=0.5, open_seconds=0.5, log_seconds=0.5)


class NoCredentials:
    def headers(self) -> dict[str, str]:
        return {}

    def renew(self, rejected: Any) -> None:
        """Do nothing."""


def connect(url: str, limits: Limits = LIMITS) -> Client:
    transport = PooledTransport(urllib3.PoolManager(), url, NoCredentials())
    return Client(transport, host=url, backoff=Backoff(first=0.001, attempts=2), limits=limits)


@contextlib.contextmanager
def server(respond: Callable[[HostileServer, Received], Answer]) -> Iterator[tuple[Client, HostileServer]]:
    with serve(respond) as hostile, contextlib.closing(connect(hostile.url)) as client:
        yield client, hostile


DRIPPING: dict[str, Callable[[HostileServer, Received], Answer]] = {
    "status line": lambda hostile, _: Answer(raw=hostile.drip(b"H")),
    "headers": lambda hostile, _: Answer(raw=prefixed(b"HTTP/1.1 200 OK\r\nX-A: ", hostile.drip(b"a"))),
    "body": lambda hostile, _: Answer(body=hostile.drip()),
    "body within its length": lambda hostile, _: Answer(headers=(("Content-Length", "100000"),), body=hostile.drip()),
    "size of a chunk": lambda hostile, _: Answer(headers=(("Transfer-Encoding", "chunked"),), body=hostile.drip(b"0")),
    "a chunk": lambda hostile, _: Answer(
        headers=(("Transfer-Encoding", "chunked"),), body=prefixed(b"ffff\r\n", hostile.drip())
    ),
    "refusal": lambda hostile, _: Answer(status=403, body=hostile.drip()),
    "nothing": lambda hostile, _: Answer(raw=hostile.hang()),
}


def prefixed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


@pytest.mark.parametrize("respond", DRIPPING.values(), ids=DRIPPING.keys())
@pytest.mark.parametrize("send", [Client.call, lambda client, _: read_log(client)], ids=["call", "log"])
def test_an_answer_that_drips_is_given_up(respond, send):
    with server(respond) as (client, hostile):
        with pytest.raises(KfjobError, match=r"no complete answer in 0\.5 s|no answer in time"):
            send(client, GET)
        assert len(hostile.received) == 1, "it is not requested again"


def read_log(client: Client) -> bytes:
    """Return a log, as `PodLog` reads it; a lost connection is an error for a user."""
    from kfjob.cluster.errors import ConnectionLost, make_unreachable

    try:
        stream = client.open(LOG, read_timeout=10.0, total_seconds=client.limits.log_seconds)
        with contextlib.closing(stream):
            return b"".join(stream.chunks())
    except ConnectionLost as lost:
        raise make_unreachable(lost, client.host) from lost


@pytest.mark.parametrize("answer", [Answer(body=endless()), gzip_bomb(64)], ids=["endless", "gzip bomb"])
def test_a_response_over_the_limit_is_cut_off(answer):
    with server(lambda *_: answer) as (client, hostile):
        with pytest.raises(Unreachable, match="larger than 2 MiB"):
            client.call(GET)
        assert len(hostile.received) == 1
        assert hostile.sent < 64 * MEBIBYTE


def test_an_endless_refusal_is_still_that_refusal():
    with server(lambda *_: Answer(status=403, body=endless(b"no " * 1000))) as (client, _):
        with pytest.raises(KfjobError, match="not allowed to get pods") as caught:
            client.call(GET)
        assert len(str(caught.value)) < 2000


def test_an_encoding_that_was_not_requested_is_refused():
    with server(lambda *_: twice_compressed(4)) as (client, _), pytest.raises(Unreachable, match="not requested"):
        client.call(GET)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_never_sends_a_byte_is_given_up(scheme):
    with (
        serve_nothing() as address,
        contextlib.closing(connect(f"{scheme}://{address}")) as client,
        pytest.raises(Unreachable, match=r"no complete answer in 0\.5 s"),
    ):
        client.call(GET)


def test_a_redirect_is_an_error():
    def respond(hostile: HostileServer, _: Received) -> Answer:
        return Answer(status=302, headers=(("Location", hostile.url + "/elsewhere"),))

    with server(respond) as (client, hostile), pytest.raises(KfjobError):
        client.call(GET)
    assert [received.path for received in hostile.received] == [GET.path]


ODD: dict[str, Answer] = {
    "not HTTP": Answer(raw=[b"SSH-2.0-OpenSSH_9.2\r\n"]),
    "HTTP/0.9": Answer(raw=[b"hello"]),
    "length is a word": Answer(headers=(("Content-Length", "many"),), body=[b"{}"]),
    "length is negative": Answer(headers=(("Content-Length", "-5"),), body=[b"x"]),
    "two lengths": Answer(headers=(("Content-Length", "5"), ("Content-Length", "7")), body=[b"{}"]),
    "shorter than its length": Answer(headers=(("Content-Length", "50"),), body=[b"{}"]),
    "header without a colon": Answer(raw=[b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n["]),
    "header of 100 KB": Answer(headers=(("X-A", "a" * 100_000),), body=[b"{}"]),
    "1000 headers": Answer(headers=tuple((f"X-{index}", "a") for index in range(1000)), body=[b"{}"]),
    "bytes in a header": Answer(raw=[b"HTTP/1.1 200 OK\r\nX-A: \xff\xfe\x00\r\n\r\n["]),
    "chunk of an unknown size": Answer(headers=(("Transfer-Encoding", "chunked"),), body=[b"zz\r\n{}\r\n"]),
    "not gzip": Answer(headers=(("Content-Encoding", "gzip"),), body=[b"{}"]),
    "status 99": Answer(status=99),
    "status 999": Answer(status=999, body=[b"x"]),
    "status 204": Answer(status=204),
    "empty": Answer(),
    "an HTML page": Answer(headers=(("Content-Type", "text/html"),), body=[b"<html>Sign in</html>"]),
    "an HTML error": Answer(status=502, body=[b"<html><h1>502 Bad Gateway</h1></html>"]),
    "not UTF-8": json_answer(b'{"a": "\xff"}'),
    "a list": json_answer([]),
    "null": json_answer(None),
    "a number of 6000 digits": json_answer(b"1" * 6000),
    "deep": json_answer(b"[" * 100_000),
    "deep objects": json_answer(b'{"a":' * 100_000),
    "deep refusal": json_answer(b'{"kind":' * 100_000, 403),
    "refusal that is a list": json_answer([], 404),
    "refusal with wrong types": json_answer({"kind": "Status", "message": ["a"], "details": ["b"], "reason": {}}, 404),
    "causes that are no list": json_answer({"kind": "Status", "details": {"causes": "x"}}, 422),
    "causes that are no objects": json_answer({"kind": "Status", "details": {"causes": [1, None]}}, 422),
    "refusal that is not UTF-8": Answer(status=403, body=[b"\xff\xfe"]),
    "retry after soon": Answer(status=429, headers=(("Retry-After", "\u00b2"),)),
    "retry after long": Answer(status=429, headers=(("Retry-After", "9" * 5000),)),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # urllib3 forgets a socket with odd headers
@pytest.mark.parametrize("answer", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize(
    "request_",
    [GET, requests.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ml"}})],
    ids=["get", "create"],
)
def test_an_odd_response_is_one_error_or_a_result(answer, request_):
    limits = Limits(body_bytes=MEBIBYTE, complete_seconds=5.0)
    with serve(lambda *_: answer) as hostile, contextlib.closing(connect(hostile.url, limits)) as client:
        message, result = call(client, request_)
    gc.collect()  # a forgotten socket is this test's, and no other's
    assert len(message) < 5000
    assert message or isinstance(result, dict)


def call(client: Client, request: requests.Request) -> tuple[str, object]:
    """Return the message of the error, or the result. A pause before a retry is not waited for."""
    client.pause = lambda seconds: True  # type: ignore[method-assign]  # noqa: ARG005 - the signature of the method
    try:
        return "", client.call(request)
    except KfjobError as err:
        return str(err), None


def test_pages_of_events_without_an_end_are_not_all_read(monkeypatch):
    monkeypatch.setattr(cluster_events, "MAX_EVENT_PAGES", 5)
    job = {"metadata": {"name": "llama", "namespace": "ml", "uid": "u"}}
    with server(lambda *_: json_answer({"metadata": {"continue": "more"}, "items": []})) as (client, hostile):
        assert cluster_events.read_events(client, KIND, job) == []
        assert len(hostile.received) == 5


def watch_answers(kind: str) -> Callable[[HostileServer, Received], Answer]:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    answers = {
        "410": lambda: refusal(410, "Expired", "too old resource version"),
        "410 in the stream": lambda: json_answer(gone),
        "500": lambda: refusal(500, "InternalError"),
        "429": lambda: refusal(429, "TooManyRequests"),
        "ended at once": lambda: Answer(body=[]),
        "half an event": lambda: Answer(body=[b'{"type": "ADD']),
        "a bookmark and the end": lambda: json_answer(
            {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "11"}}}
        ),
        "an event and the end": lambda: json_answer(
            {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "p", "uid": "u", "resourceVersion": "11"}}}
        ),
    }

    def respond(_: HostileServer, received: Received) -> Answer:
        if "watch=true" in received.path:
            return answers[kind]()
        return json_answer({"metadata": {"resourceVersion": "10"}, "items": []})

    return respond


@pytest.mark.parametrize(
    "kind",
    [
        "410",
        "410 in the stream",
        "500",
        "429",
        "ended at once",
        "half an event",
        "a bookmark and the end",
        "an event and the end",
    ],
)
def test_a_watch_that_always_ends_is_opened_less_and_less_often(kind):
    """The pauses are counted instead of waited for."""
    pauses: list[float] = []
    with server(watch_answers(kind)) as (client, hostile):
        watch = ObjectWatch(client, requests.select_dependents(KIND, "pods", "ml", "llama"))

        def pause(seconds: float) -> bool:
            pauses.append(seconds)
            if len(pauses) == 12:
                watch.close()
            return True

        client.pause = pause  # type: ignore[method-assign]
        list(watch.changes())
    assert len(hostile.received) <= 2 * len(pauses), "no request without a pause"
    assert pauses[-1] >= 5.0, pauses
    assert sum(pauses) > 30.0


def test_a_watch_that_drips_ends(monkeypatch):
    monkeypatch.setattr("kfjob.cluster.watch.WATCH_SECONDS", 0)
    monkeypatch.setattr("kfjob.cluster.watch.READ_TIMEOUT_MARGIN", 0.3)

    def respond(hostile: HostileServer, received: Received) -> Answer:
        if "watch=true" in received.path:
            return Answer(body=hostile.drip())
        return json_answer({"metadata": {"resourceVersion": "10"}, "items": []})

    ended = threading.Event()
    with server(respond) as (client, hostile):
        watch = ObjectWatch(client, requests.select_dependents(KIND, "pods", "ml", "llama"))

        def pause(seconds: float) -> bool:
            ended.set()
            watch.close()
            return True

        client.pause = pause  # type: ignore[method-assign]
        Task(lambda: list(watch.changes()), name="test").result(timeout=30)
    assert ended.is_set()
    assert len(hostile.received) == 2
