"""Where a registry's API is, and whom to trust there: what containerd's `hosts.toml` and Docker's `certs.d` say of a host.

Both are folders with one folder a host. containerd's holds `hosts.toml` (containerd, docs/hosts.md): mirrors with what each
may be used for, `ca`, `client`, `skip_verify`. Docker's holds `*.crt` (authorities), `*.cert` with `*.key` (who we are).
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from kfjob.errors import UsageError

Use = Literal["pull", "push"]
FOLDERS_VARIABLE = "KFJOB_REGISTRY_CERTS"
_FOLDERS = ("~/.config/containerd/certs.d", "/etc/containerd/certs.d", "~/.config/docker/certs.d", "/etc/docker/certs.d")


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One address that answers for a registry."""

    url: str  # "https://host:port", to which "/v2/…" is added
    authorities: tuple[Path, ...] = ()  # beside the system's
    certificate: tuple[Path, Path] | None = None  # ours, and its key
    verify: bool = True

    @property
    def host(self) -> str:
        """For messages."""
        return urlsplit(self.url).netloc


def list_config_folders(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """Where this machine keeps what it knows of registries; `KFJOB_REGISTRY_CERTS` (a list as in PATH) instead, if set."""
    said = environ.get(FOLDERS_VARIABLE)
    return tuple(Path(folder).expanduser() for folder in (said.split(os.pathsep) if said else _FOLDERS))


def find_endpoint(host: str, use: Use, *, folders: Sequence[Path], registry: str = "") -> Endpoint:
    """The address to `use` a registry by: the first that may be, else the registry's own.

    Its folder is called after it, or as images call it, where that is another name (`docker.io`).

    A registry on this machine's loopback is spoken to without TLS, as containerd and Docker do, unless a folder says otherwise.

    Raises:
        UsageError: a `hosts.toml` cannot be read.
    """
    named = dict.fromkeys([registry or host, host])
    for folder in (one for name in named for one in _folders_of(name, folders)):
        file = folder / "hosts.toml"
        if file.is_file():
            for found, uses in _said(host, file):
                if use in uses:
                    return found
        elif authorities := tuple(sorted(folder.glob("*.crt"))):
            return Endpoint(url=f"https://{host}", authorities=authorities, certificate=_pair(folder))
    return Endpoint(url=f"{'http' if _is_loopback(host) else 'https'}://{host}")


def _folders_of(host: str, folders: Sequence[Path]) -> Iterator[Path]:
    name, colon, port = host.rpartition(":")
    for folder in folders:
        for own in (host, f"{name}_{port}_" if colon else host):  # the second where a file system has no colons
            if (folder / own).is_dir():
                yield folder / own
                break


def _said(host: str, file: Path) -> Iterator[tuple[Endpoint, tuple[str, ...]]]:
    try:
        said = tomllib.loads(file.read_text(encoding="utf-8"))
        for url, table in (said.get("host") or {}).items():
            yield _endpoint(url, table, file.parent), tuple(table.get("capabilities") or ("pull", "resolve", "push"))
        yield _endpoint(said.get("server") or f"https://{host}", said, file.parent), ("pull", "push")
    except (OSError, ValueError, TypeError, AttributeError) as err:
        raise UsageError("what is said of a registry cannot be read", location=str(file), cause=str(err)) from err


def _endpoint(url: str, table: Mapping[str, Any], folder: Path) -> Endpoint:
    authorities = table.get("ca") or ()
    pairs = table.get("client") or ()
    pair = pairs[0] if pairs and not isinstance(pairs, str) else pairs
    files = (pair, pair) if isinstance(pair, str) else tuple(pair)[:2]
    return Endpoint(
        url=(url if "://" in url else f"https://{url}").rstrip("/").removesuffix("/v2"),
        authorities=tuple(folder / one for one in ([authorities] if isinstance(authorities, str) else authorities)),
        certificate=(folder / files[0], folder / files[1]) if files else None,
        verify=not table.get("skip_verify", False),
    )


def _pair(folder: Path) -> tuple[Path, Path] | None:
    return next(((cert, cert.with_suffix(".key")) for cert in sorted(folder.glob("*.cert"))), None)


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
