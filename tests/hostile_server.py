"""A small HTTP server on the loopback. A test gives it a function from requests to answers.

It stands in for an API server, a registry, a hub or a receiver of messages. Its answers may be such as no server should give:
endless, compressed to nothing, byte by byte, or none. Each ends when the server is closed or the client hangs up.
"""

from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MEBIBYTE = 1024 * 1024
DRIP_SECONDS = 0.02
"""Time between two bytes of an answer that drips: shorter than the timeout of a read, so only a limit of the whole ends it."""


@dataclass(frozen=True)
class Received:
    """A request as it arrived."""

    method: str
    path: str  # with the query
    headers: Mapping[str, str]
    body: bytes = b""
    has_certificate: bool = False
    """The client presented a certificate."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A response. Its body is sent piece by piece, without a length; the connection is closed after it."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: Iterable[bytes] = ()
    raw: Iterable[bytes] | None = None
    """Bytes that are sent instead of an HTTP response."""


@dataclass
class HostileServer:
    """The server while it runs."""

    url: str
    closing: threading.Event
    received: list[Received] = field(default_factory=list)
    sent: int = 0  # bytes of all bodies
    hung_up: threading.Event = field(default_factory=threading.Event)
    """A client closed its connection before its answer was complete."""

    def drip(self, piece: bytes = b" ") -> Iterator[bytes]:
        """Yield `piece` again and again, slowly."""
        while not self.closing.wait(DRIP_SECONDS):
            yield piece

    def hang(self) -> Iterator[bytes]:
        """Yield nothing until the server is closed."""
        self.closing.wait()
        yield from ()


Respond = Callable[[HostileServer, Received], Answer]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def handle_one_request(self) -> None:
        self.close_connection = True
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        has_certificate = isinstance(self.connection, ssl.SSLSocket) and bool(self.connection.getpeercert())
        received = Received(self.command, self.path, dict(self.headers.items()), body, has_certificate)
        self.server.hostile.received.append(received)
        self.close_connection = True
        try:
            self._send(self.server.respond(self.server.hostile, received))
        except OSError:
            self.server.hostile.hung_up.set()

    def _send(self, answer: Answer) -> None:
        if answer.raw is None:
            lines = [f"HTTP/1.1 {answer.status} Status", *(f"{name}: {value}" for name, value in answer.headers)]
            self.wfile.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
        for piece in answer.body if answer.raw is None else answer.raw:
            self.wfile.write(piece)
            self.server.hostile.sent += len(piece)
            if self.server.hostile.closing.is_set():
                return

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    hostile: HostileServer
    respond: Respond

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: clients hang up on purpose."""


@contextmanager
def serve(respond: Respond, *, tls: ssl.SSLContext | None = None) -> Iterator[HostileServer]:
    """Run the server inside the `with` block."""
    server = _Server(("127.0.0.1", 0), _Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "https" if tls else "http"
    hostile = HostileServer(url=f"{scheme}://127.0.0.1:{server.server_address[1]}", closing=threading.Event())
    server.hostile, server.respond = hostile, respond
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hostile
    finally:
        hostile.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve_nothing() -> Iterator[str]:
    """Accept connections and never send a byte, also no TLS handshake. Yield the address without a scheme."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def json_answer(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer with a JSON body."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status=status, headers=(("Content-Type", "application/json"), *headers), body=[body])


def refusal(status: int, reason: str, message: str = "no") -> Answer:
    """Return a refusal as an API server sends it."""
    return json_answer({"kind": "Status", "code": status, "reason": reason, "message": message}, status)


def prefixed(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a piece before others."""
    yield first
    yield from rest


def endless(piece: bytes = b" " * 65536) -> Iterator[bytes]:
    """Yield pieces without an end, as fast as the client reads."""
    while True:
        yield piece


def gzip_bomb(mebibytes: int) -> Answer:
    """Return an answer of a few KiB that has this size when it is decompressed."""
    bomb = gzip.compress(b'"' + b" " * mebibytes * MEBIBYTE, compresslevel=1)
    return Answer(headers=(("Content-Encoding", "gzip"),), body=[bomb])


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until the condition holds.

    Raises:
        AssertionError: it does not hold in time.
    """
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("not in time")
