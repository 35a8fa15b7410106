"""Map ECR's host name and port 443 to a registry on a free port, for one builder only."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.image.builders import Buildah

ADDRESS = f"127.{os.getpid() % 200 + 20}.77.1"


@contextlib.contextmanager
def front(port: int, address: str = ADDRESS, at: int = 443) -> Iterator[str]:
    """Forward connections to the address (port 443 by default) to `port` on the loopback."""
    with socket.create_server((address, at)) as server:
        thread = threading.Thread(target=_accept, args=(server, port))
        thread.start()
        try:
            yield address
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(server: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            here, _ = server.accept()
            threading.Thread(target=_join, args=(here, port), daemon=True).start()


def _join(here: socket.socket, port: int) -> None:
    with here, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as there:
        back = threading.Thread(target=_copy, args=(there, here), daemon=True)
        back.start()
        _copy(here, there)
        back.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(65536):
            other.sendall(piece)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def named(builder: Buildah, folder: Path, name: str, address: str, *insecure: str) -> Buildah:
    """Return a builder that resolves `name` to the address with a private hosts file, and accepts any certificate there."""
    folder.mkdir(parents=True)
    hosts, program = folder / "hosts", folder / "buildah"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    script = f'mount --bind {hosts} /etc/hosts; exec {builder.program} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' buildah \"$@\"\n")
    program.chmod(0o755)
    registries = folder / "registries.conf"
    registries.write_text("".join(f'[[registry]]\nlocation = "{one}"\ninsecure = true\n' for one in (name, *insecure)))
    return Buildah(program, builder.environment | {"CONTAINERS_REGISTRIES_CONF": str(registries)})
