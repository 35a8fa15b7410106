"""Every wait for a server has an end, whatever it sends; the work that it causes is bounded; which requests are repeated."""

from __future__ import annotations

import gc
import socket
import ssl
from contextlib import closing, suppress

import pytest
import urllib3
import urllib3.connection
import urllib3.exceptions

from kfjob.base.connections import make_pool, make_tls_context
from kfjob.base.http import ConnectionLost, HttpClient, Limits, Response, backoff, map_exception, read_response
from tests.hostile_server import (
    MEBIBYTE,
    Answer,
    HostileServer,
    Received,
    Respond,
    endless,
    gzip_bomb,
    prefixed,
    serve,
    serve_nothing,
)

SHORT = Limits(attempts=3, pause=0.0, start_seconds=0.5, body_seconds=0.5, body_bytes=2 * MEBIBYTE)
PATIENT = Limits(attempts=3, pause=0.0, body_bytes=2 * MEBIBYTE)


def send(url: str, limits: Limits, *, method: str = "GET", repeatable: bool = True, redirect: bool = False) -> Response:
    with closing(HttpClient(make_pool(url, make_tls_context()))) as http:
        headers = {"Accept-Encoding": "gzip", "Authorization": "Bearer secret"}
        stream = http.open(method, url, headers=headers, limits=limits, repeatable=repeatable, redirect=redirect)
        return read_response(stream, limits)


DRIPPING: dict[str, Respond] = {
    "status line": lambda hostile, _: Answer(raw=hostile.drip(b"H")),
    "headers": lambda hostile, _: Answer(raw=prefixed(b"HTTP/1.1 200 OK\r\nX-A: ", hostile.drip(b"a"))),
    "body within its length": lambda hostile, _: Answer(headers=(("Content-Length", "100000"),), body=hostile.drip()),
    "a chunk": lambda hostile, _: Answer(
        headers=(("Transfer-Encoding", "chunked"),), body=prefixed(b"ffff\r\n", hostile.drip())
    ),
    "refusal": lambda hostile, _: Answer(status=403, body=hostile.drip()),
    "nothing": lambda hostile, _: Answer(raw=hostile.hang()),
}


@pytest.mark.parametrize("respond", DRIPPING.values(), ids=DRIPPING.keys())
def test_an_answer_that_drips_is_given_up(respond: Respond):
    with serve(respond) as hostile:
        with pytest.raises(ConnectionLost, match=r"no complete answer in 0\.5 s") as caught:
            send(hostile.url, SHORT)
        assert caught.value.timed_out
        assert len(hostile.received) == 1, "it is not requested again"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_never_sends_a_byte_is_given_up(scheme: str):
    with serve_nothing() as address, pytest.raises(ConnectionLost, match=r"no complete answer in 0\.5 s"):
        send(f"{scheme}://{address}", SHORT)


@pytest.mark.parametrize("answer", [Answer(body=endless()), gzip_bomb(64)], ids=["endless", "gzip bomb"])
def test_a_response_over_the_limit_is_cut_off(answer: Answer):
    with serve(lambda *_: answer) as hostile:
        with pytest.raises(ConnectionLost, match="larger than 2 MiB"):
            send(hostile.url, PATIENT)
        assert len(hostile.received) == 1
        assert hostile.sent < 64 * MEBIBYTE


def test_only_the_beginning_of_an_error_is_read():
    with serve(lambda *_: Answer(status=403, body=endless(b"no " * 1000))) as hostile:
        response = send(hostile.url, PATIENT)
    assert response.status == 403
    assert response.body.startswith(b"no no ")
    assert len(response.body) == 64 * 1024


CASES: list[tuple[int | None, bool, int]] = [  # the first status (None: no answer), whether repeatable, requests
    (429, True, 2),
    (503, True, 2),
    (500, True, 2),
    (404, True, 1),
    (None, True, 2),
    (429, False, 2),  # the server certainly did not execute the request
    (500, False, 1),
    (None, False, 1),
]


@pytest.mark.parametrize(("status", "repeatable", "count"), CASES)
def test_which_requests_are_repeated(status: int | None, repeatable: bool, count: int):  # noqa: FBT001 - a parameter
    def respond(hostile: HostileServer, _: Received) -> Answer:
        if len(hostile.received) > 1:
            return Answer(body=[b"done"])
        return Answer(raw=[]) if status is None else Answer(status=status)

    with serve(respond) as hostile:
        if status is None and count == 1:
            with pytest.raises(ConnectionLost):
                send(hostile.url, PATIENT, method="POST", repeatable=repeatable)
        else:
            response = send(hostile.url, PATIENT, method="POST", repeatable=repeatable)
            assert response.status == (200 if count == 2 else status)
        assert len(hostile.received) == count


def test_a_busy_server_is_the_answer_after_all_attempts():
    with serve(lambda *_: Answer(status=503, body=[b"etcd is away"])) as hostile:
        assert send(hostile.url, PATIENT).body == b"etcd is away"
        assert len(hostile.received) == PATIENT.attempts


def test_retry_after_is_followed_within_reason():
    limits = Limits(attempts=2, max_pause=1.0, start_seconds=30.0)
    with serve(lambda *_: Answer(status=429, headers=(("Retry-After", "3600"),))) as hostile:
        assert send(hostile.url, limits).status == 429
        assert len(hostile.received) == 2


def test_pauses_double_up_to_their_bound():
    assert all(0.5 <= backoff(1, first=1.0) <= 1.0 for _ in range(20))
    assert all(2.5 <= backoff(failures, first=1.0, longest=5.0) <= 5.0 for failures in (4, 50, 5000))


def test_credentials_do_not_follow_a_redirect_to_another_host():
    with serve(lambda *_: Answer(body=[b"x"])) as other:
        location = other.url.replace("127.0.0.1", "localhost")

        def respond(_: HostileServer, received: Received) -> Answer:
            return Answer(status=307, headers=(("Location", location if received.path == "/there" else "/there"),))

        with serve(respond) as hostile:
            assert send(hostile.url, PATIENT, redirect=True).body == b"x"
            assert [request.headers.get("Authorization") for request in hostile.received] == ["Bearer secret"] * 2
    assert "Authorization" not in other.received[0].headers


def test_redirects_without_an_end_are_an_error():
    with serve(lambda _, received: Answer(status=307, headers=(("Location", f"{received.path}a"),))) as hostile:
        with pytest.raises(ConnectionLost, match="too many redirects"):
            send(hostile.url, Limits(attempts=9), redirect=True)
        assert len(hostile.received) == 6
        assert send(hostile.url, PATIENT).status == 307, "otherwise it is the answer"


ODD: dict[str, Answer] = {
    "not HTTP": Answer(raw=[b"SSH-2.0-OpenSSH_9.2\r\n"]),
    "two lengths": Answer(headers=(("Content-Length", "5"), ("Content-Length", "7")), body=[b"{}"]),
    "shorter than its length": Answer(headers=(("Content-Length", "50"),), body=[b"{}"]),
    "header of 100 KB": Answer(headers=(("X-A", "a" * 100_000),), body=[b"{}"]),
    "chunk of an unknown size": Answer(headers=(("Transfer-Encoding", "chunked"),), body=[b"zz\r\n{}\r\n"]),
    "not gzip": Answer(headers=(("Content-Encoding", "gzip"),), body=[b"{}"]),
    "retry after soon": Answer(status=429, headers=(("Retry-After", "\u00b2"),)),
    "redirect to no URL": Answer(status=307, headers=(("Location", "http://[::1"),)),
    "redirect to a port that is none": Answer(status=307, headers=(("Location", "http://a:b/"),)),
    "redirect to a file": Answer(status=307, headers=(("Location", "file:///etc/passwd"),)),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # urllib3 forgets a socket with odd headers
@pytest.mark.parametrize("answer", ODD.values(), ids=ODD.keys())
def test_an_odd_response_is_a_lost_connection(answer: Answer):
    with serve(lambda *_: answer) as hostile, pytest.raises(ConnectionLost) as caught:
        send(hostile.url, PATIENT, redirect=True)
    gc.collect()  # a forgotten socket is this test's, and no other's
    assert len(str(caught.value)) < 1000


def make_exception(kind: type[Exception]) -> Exception:
    pool = urllib3.HTTPSConnectionPool("host", 6443)
    for arguments in (("x",), (pool, "x"), (pool, "/", "x")):
        with suppress(TypeError):
            return kind(*arguments)
    raise AssertionError(f"{kind} takes other arguments")


def exceptions() -> list[Exception]:
    """One of every class that urllib3 has, so that a new class in a later version fails here rather than at a user's."""
    u = urllib3.exceptions
    connection = urllib3.connection.HTTPConnection("host", 6443)
    special: dict[type, Exception] = {
        u.NewConnectionError: u.NewConnectionError(
            connection, f"{connection}: Failed to establish a new connection: [Errno 111] no"
        ),
        u.NameResolutionError: u.NameResolutionError("host", connection, socket.gaierror(-2, "not known")),
        u.ProxyError: u.ProxyError("Unable to connect to proxy", OSError("refused")),
        u.IncompleteRead: u.IncompleteRead(1, 2),
    }
    classes = [one for one in vars(u).values() if isinstance(one, type) and issubclass(one, u.HTTPError)]
    left_out = (Warning, u.InvalidChunkLength)  # the latter needs a response: "chunk of an unknown size" is above
    made = [special.get(one) or make_exception(one) for one in classes if not issubclass(one, left_out)]
    return [*made, ConnectionResetError("reset"), ssl.SSLEOFError("eof"), TimeoutError("t")]


@pytest.mark.parametrize("err", exceptions(), ids=lambda err: type(err).__name__)
def test_every_exception_of_urllib3_is_a_lost_connection(err: Exception):
    assert "0x" not in map_exception(err).cause


def test_causes_are_short():
    causes = {type(err): map_exception(err).cause for err in exceptions()}
    assert causes[urllib3.exceptions.NewConnectionError] == "[Errno 111] no"
    assert causes[urllib3.exceptions.NameResolutionError] == "the name cannot be resolved"


def test_an_unknown_authority_is_recognised():
    assert map_exception(urllib3.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")).untrusted


def test_other_exceptions_are_raised_again():
    with pytest.raises(KeyError):
        map_exception(KeyError("x"))


PROXIES = [("", True), ("*", False), ("other.example,127.0.0.1", False), ("127.0.0.0/8", False), ("10.0.0.0/8", True)]


@pytest.mark.parametrize(("excluded", "is_used"), PROXIES)
def test_proxy_of_the_environment(excluded: str, is_used: bool, monkeypatch: pytest.MonkeyPatch):  # noqa: FBT001 - a parameter
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", excluded)
    pool = make_pool("https://127.0.0.1:6443", make_tls_context())
    assert isinstance(pool, urllib3.ProxyManager) == is_used
