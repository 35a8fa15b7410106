"""A proxy that cuts connections, as a server restart, a load balancer or a laptop's network does."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


class Proxy:
    """A proxy that forwards connections to one address."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._refuse_until = 0.0
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, refuse_for: float = 0.0) -> None:
        """Close every connection at once, and refuse new ones for `refuse_for` seconds."""
        self._refuse_until = time.monotonic() + refuse_for
        connections, self._open = self._open, []
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        self.cut()
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if time.monotonic() < self._refuse_until:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                self._open += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
