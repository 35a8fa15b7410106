"""An HTTP proxy (CONNECT) that leads host names to ports of the loopback, so that clients speak TLS with a cloud's name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.image.front import join_sockets


@contextmanager
def tunnel(ports: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Yield the environment of clients that reach `host:443` at a port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_accept, args=(server, ports))
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
            yield {"HTTPS_PROXY": url, "https_proxy": url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(server: socket.socket, ports: Mapping[str, int]) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            threading.Thread(target=_connect, args=(client, ports), daemon=True).start()


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
