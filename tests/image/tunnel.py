"""An HTTP proxy (CONNECT) that leads host names to ports of the loopback, so that clients speak TLS with a cloud's name."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.image.front import accept_clients, join_sockets


@contextmanager
def tunnel(ports: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Yield the environment of clients that reach `host:443` at a port of the loopback."""
    with accept_clients(("127.0.0.1", 0), lambda client: _connect(client, ports)) as port:
        url = f"http://127.0.0.1:{port}"
        yield {"HTTPS_PROXY": url, "https_proxy": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def _connect(client: socket.socket, ports: Mapping[str, int]) -> None:
    head = b""
    with suppress(OSError):
        while not head.endswith(b"\r\n\r\n"):
            head += client.recv(1)
        host, _, port = head.split()[1].decode().rpartition(":")
        if host not in ports and host != "127.0.0.1":
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            client.close()
            return
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        join_sockets(client, ports.get(host, int(port)))
