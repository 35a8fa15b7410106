"""Pools of connections for `kfjob.base.http`: TLS, proxies and keep-alive."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions
from urllib3.connection import HTTPConnection
from urllib3.util import Url, parse_url

CONNECTIONS = 1024
"""Idle connections to one host that stay open; each followed pod holds one."""


def make_pool(
    url: str, context: ssl.SSLContext, *, proxy: str | None = None, server_name: str | None = None
) -> urllib3.PoolManager:
    """Return a pool for the server at `url` and the hosts to which it redirects.

    The proxy of the environment is used unless `proxy` names one. `server_name` is the name in the server's certificate if
    that is not the host of the URL.

    Raises:
        urllib3.exceptions.LocationValueError: an address is not a URL.
    """
    settings: dict[str, Any] = {
        "ssl_context": context,
        "maxsize": CONNECTIONS,
        "socket_options": [*HTTPConnection.default_socket_options, *_list_probes()],
    }
    if server_name:
        settings["server_hostname"] = server_name
    proxy = proxy or _find_proxy(parse_url(url))
    return urllib3.ProxyManager(proxy, **settings) if proxy else urllib3.PoolManager(**settings)


def make_tls_context(authority: str | None = None) -> ssl.SSLContext:
    """Return a context that trusts an authority (PEM) alone; by default those of the system.

    Python 3.13 refuses authorities without key identifiers, which clusters have and which Go accepts.

    Raises:
        ssl.SSLError, ValueError: the text is not PEM.
    """
    context = ssl.create_default_context(cadata=authority and authority.encode("ascii", "ignore").decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None = None) -> None:
    """Present the client's certificate in new connections; its key may be in the same file.

    Raises:
        OSError, ssl.SSLError, ValueError: they cannot be read. OpenSSL would ask the terminal for the password of a key.
    """

    def refuse_password() -> str:
        raise ValueError("the key is encrypted")

    context.load_cert_chain(certificate, key, password=refuse_password)


def trust_any_server(context: ssl.SSLContext) -> None:
    """Turn off the verification of certificates, as the user has asked for this server."""
    urllib3.disable_warnings(exceptions.InsecureRequestWarning)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


def _find_proxy(url: Url) -> str | None:
    """Return the proxy that the environment names for a URL. NO_PROXY may hold networks (`10.0.0.0/8`), as for kubectl."""
    proxies, host = getproxies(), (url.host or "").strip("[]")
    if proxy_bypass(host):
        return None
    for network in proxies.get("no", "").split(","):
        with suppress(ValueError):
            if ipaddress.ip_address(host) in ipaddress.ip_network(network.strip(), strict=False):
                return None
    return proxies.get(url.scheme or "")


def _list_probes() -> Iterator[tuple[int, int, int]]:
    """Yield the options for keep-alive probes: load balancers drop a silent log stream after minutes (AWS: 350 s)."""
    yield socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, name):
            yield socket.IPPROTO_TCP, getattr(socket, name), value
