"""A proxy in front of a registry that counts bytes, and breaks connections or answers itself by a test's rule."""

from __future__ import annotations

import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from tests.image.registries import make_certificate

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"}


@dataclass
class ProxiedRequest:
    """A request that is being handled."""

    method: str
    path: str
    length: int
    headers: dict[str, str]


@dataclass(frozen=True)
class Cut:
    """Break the connection after `after` bytes of the body.

    `buffered`: the registry receives none of them, as behind nginx; `streamed`: it receives them; `answered`: it receives the
    whole request, and its answer is lost.
    """

    how: Literal["buffered", "streamed", "answered"]
    after: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer in place of the registry's."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


Rule = Callable[[ProxiedRequest], Cut | Reply | None]


@dataclass
class Proxy:
    port: int
    rule: Rule = lambda _seen: None
    requests: list[ProxiedRequest] = field(default_factory=list)
    body_bytes: int = 0  # that came from the client

    def methods(self, method: str) -> list[ProxiedRequest]:
        return [request for request in self.requests if request.method == method]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_args: object) -> None:
        pass

    def handle_one(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = ProxiedRequest(self.command, self.path, length, dict(self.headers))
        with self.server.lock:
            self.server.proxy.requests.append(request)
            action = self.server.proxy.rule(request)
        if isinstance(action, Cut) and action.how != "answered":
            return self.cut(action)
        body = self.taken(length)
        if isinstance(action, Reply):
            return self.say(action.status, action.headers, action.body)
        answer, content = self.forward(body)
        if isinstance(action, Cut):
            return self.drop()
        return self.say(answer.status, dict(answer.getheaders()), content, length=answer.getheader("Content-Length"))

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one  # noqa: N815 - as the library wants them

    def taken(self, count: int) -> bytes:
        body = self.rfile.read(count)
        with self.server.lock:
            self.server.proxy.body_bytes += len(body)
        return body

    def forward(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=20)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        if isinstance(self.connection, ssl.SSLSocket):
            connection.putheader("X-Forwarded-Proto", "https")  # the registry makes its Location URLs from it
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer, content

    def cut(self, action: Cut) -> None:
        part = self.taken(action.after)
        if action.how == "streamed":
            with socket.create_connection(("127.0.0.1", self.server.upstream)) as upstream:
                head = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
                upstream.sendall(f"{self.command} {self.path} HTTP/1.1\r\n{head}\r\n".encode() + part)
        self.drop()

    def drop(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no farewell
        self.connection.close()

    def say(self, status: int, headers: dict[str, str], body: bytes, *, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" and length else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def finish(self) -> None:
        if not self.connection._closed:
            super().finish()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: int, tls_folder: Path | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls_folder:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(make_certificate(tls_folder), tls_folder / "key.pem")
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.upstream, self.lock, self.proxy = upstream, threading.Lock(), Proxy(self.server_address[1])

    def handle_error(self, *_args: object) -> None:
        pass  # connections are broken on purpose here

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        if isinstance(request, socket.socket) and not request._closed:  # type: ignore[attr-defined]
            super().shutdown_request(request)


@contextmanager
def proxy_before(port: int, *, tls_folder: Path | None = None) -> Iterator[Proxy]:
    """Yield a proxy to a registry without TLS. With a folder, clients speak TLS; the folder gets the certificate `cert.pem`."""
    server = _Server(port, tls_folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
