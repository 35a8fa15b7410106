"""ECR's host name, port 443 and all, before a registry on a free port: seen by one builder only, and gone afterwards."""

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
def front(port: int) -> Iterator[str]:
    """What comes to the address's port 443 goes to `port`."""
    with socket.create_server((ADDRESS, 443)) as server:
        thread = threading.Thread(target=_accept, args=(server, port))
        thread.start()
        try:
            yield ADDRESS
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(server: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            there = socket.create_connection(("127.0.0.1", port))
            here, _ = server.accept()
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := one.recv(65536):
            other.sendall(piece)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def named(builder: Buildah, folder: Path, name: str, address: str) -> Buildah:
    """A builder that finds `name` at the address, by a hosts file that only it sees, and takes any certificate there."""
    folder.mkdir(parents=True)
    hosts, program = folder / "hosts", folder / "buildah"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    script = f'mount --bind {hosts} /etc/hosts; exec {builder.program} "$@"'
    program.write_text(f"#!/bin/sh\nexec unshare --mount sh -c '{script}' buildah \"$@\"\n")
    program.chmod(0o755)
    registries = folder / "registries.conf"
    registries.write_text(f'[[registry]]\nlocation = "{name}"\ninsecure = true\n')
    return Buildah(program, builder.environment | {"CONTAINERS_REGISTRIES_CONF": str(registries)})
