"""Find the API address of a registry and the certificates to trust, from containerd's `hosts.toml` and Docker's `certs.d`.

Both have one folder for each registry. containerd's folder holds `hosts.toml` (containerd, docs/hosts.md): mirrors with their
capabilities, `ca`, `client`, `skip_verify`. Docker's folder holds `*.crt` (authorities), and `*.cert` with `*.key` (client).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import UsageError
from kfjob.base.parsing import parse_toml, read_document
from kfjob.base.units import MIB

Use = Literal["pull", "push"]
MAX_HOSTS_BYTES = MIB
"""Size of a `hosts.toml`."""
FOLDERS_VARIABLE = "KFJOB_REGISTRY_CERTS"
_FOLDERS = ("~/.config/containerd/certs.d", "/etc/containerd/certs.d", "~/.config/docker/certs.d", "/etc/docker/certs.d")


class Endpoint(Struct, frozen=True, kw_only=True):
    """An address of a registry's API."""

    url: str  # "https://host:port"; the API is under "/v2/"
    authorities: tuple[Path, ...] = ()  # in addition to the system's
    certificate: tuple[Path, Path] | None = None  # of the client, with its key
    verify: bool = True
    is_mirror: bool = False  # its host is not the registry's own

    @property
    def has_tls(self) -> bool:
        """Whether requests are encrypted. Logins are sent to no other endpoint."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host(self) -> str:
        """The host and port, for messages."""
        return urlsplit(self.url).netloc


def list_config_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Return the configuration folders of this machine; `KFJOB_REGISTRY_CERTS` (a list as in PATH) replaces them."""
    setting = environ.get(FOLDERS_VARIABLE)
    return tuple(Path(folder).expanduser() for folder in (setting.split(os.pathsep) if setting else _FOLDERS))


def find_endpoint(host: str, use: Use, *, folders: Sequence[Path], registry: str = "") -> Endpoint:
    """Return the first address that allows `use`, else the registry's own. An address with another host is marked as a mirror.

    A folder has the name of the registry (`docker.io`) or of its host. A registry on this machine's loopback is accessed
    without TLS, as containerd and Docker do, unless a folder configures it.

    Raises:
        UsageError: a `hosts.toml` cannot be read.
    """
    names = dict.fromkeys([registry or host, host])
    for folder in (folder for name in names for folder in _find_folders(name, folders)):
        file = folder / "hosts.toml"
        if file.is_file():
            for endpoint, capabilities in _read_hosts(host, file):
                if use in capabilities:
                    return endpoint
        elif authorities := tuple(sorted(folder.glob("*.crt"))):
            return Endpoint(url=f"https://{host}", authorities=authorities, certificate=_find_certificate(folder))
    return Endpoint(url=f"{'http' if _is_loopback(host) else 'https'}://{host}")


def _find_folders(host: str, folders: Sequence[Path]) -> Iterator[Path]:
    name, colon, port = host.rpartition(":")
    for folder in folders:
        for subfolder in (host, f"{name}_{port}_" if colon else host):  # the second is for file systems without colons
            if (folder / subfolder).is_dir():
                yield folder / subfolder
                break


def _read_hosts(host: str, file: Path) -> Iterator[tuple[Endpoint, tuple[str, ...]]]:
    """Yield the endpoints of a `hosts.toml` with their capabilities."""
    try:
        config = parse_toml(read_document(file, max_bytes=MAX_HOSTS_BYTES))
        for url, table in (config.get("host") or {}).items():
            capabilities = tuple(table.get("capabilities") or ("pull", "resolve", "push"))
            yield _parse_endpoint(host, url, table, file.parent), capabilities
        yield _parse_endpoint(host, config.get("server") or f"https://{host}", config, file.parent), ("pull", "push")
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise UsageError("the registry's configuration cannot be read", location=str(file), cause=str(err)) from err


def _parse_endpoint(host: str, url: str, table: JsonMapping, folder: Path) -> Endpoint:
    authorities = table.get("ca") or ()
    clients = table.get("client") or ()
    client = clients[0] if clients and not isinstance(clients, str) else clients
    files = (client, client) if isinstance(client, str) else tuple(client)[:2]
    url = (url if "://" in url else f"https://{url}").rstrip("/").removesuffix("/v2")
    return Endpoint(
        url=url,
        authorities=tuple(folder / file for file in ([authorities] if isinstance(authorities, str) else authorities)),
        certificate=(folder / files[0], folder / files[1]) if files else None,
        verify=not table.get("skip_verify", False),
        is_mirror=_normalize_host(urlsplit(url).netloc) != _normalize_host(host),
    )


def _normalize_host(host: str) -> str:
    return host.lower().removesuffix(":443")


def _find_certificate(folder: Path) -> tuple[Path, Path] | None:
    return next(((cert, cert.with_suffix(".key")) for cert in sorted(folder.glob("*.cert"))), None)


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
