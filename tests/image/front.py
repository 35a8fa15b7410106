"""Map ECR's host name and port 443 to a registry on a free port, for one builder only."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.image.builders import Buildah

ADDRESS = f"127.{os.getpid() % 200 + 20}.77.1"


@contextlib.contextmanager
def front(port: int, address: str = ADDRESS, at: int = 443) -> Iterator[str]:
    """Forward connections to the address (port 443 by default) to `port` on the loopback."""
    with accept_clients((address, at), lambda client: join_sockets(client, port)):
        yield address


@contextlib.contextmanager
def accept_clients(address: tuple[str, int], handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen until the block ends, handle each client in a thread of its own, and yield the port."""

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                threading.Thread(target=handle, args=(client,), daemon=True).start()

    with socket.create_server(address) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def join_sockets(client: socket.socket, port: int) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server_socket:
        back = threading.Thread(target=_copy, args=(server_socket, client), daemon=True)
        back.start()
        _copy(client, server_socket)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def named(builder: Buildah, folder: Path, name: str, address: str, *insecure: str) -> Buildah:
    """Return a builder that resolves `name` to the address with a private hosts file, and accepts any certificate there.

    It needs no tunnel: it gets the proxies of the test run, so that its builds reach the package index.
    """
    folder.mkdir(parents=True)
    hosts, program = folder / "hosts", folder / "buildah"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    script = f'mount --bind {hosts} /etc/hosts; {_restore_proxies()}exec {builder.program} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' buildah \"$@\"\n")
    program.chmod(0o755)
    registries = folder / "registries.conf"
    registries.write_text("".join(f'[[registry]]\nlocation = "{source}"\ninsecure = true\n' for source in (name, *insecure)))
    return Buildah(program, builder.environment | {"CONTAINERS_REGISTRIES_CONF": str(registries)})


def _restore_proxies() -> str:
    values = {name: os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy")}
    return "".join(f'export {name}="{value}"; ' if value else f"unset {name}; " for name, value in values.items())
