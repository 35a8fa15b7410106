"""Make a client from a kubeconfig, or from the service account of this pod, as the `kubernetes` package reads them.

kfjob uses its configuration and authentication, credential plugins included, and not its generated models and API classes.
Importing the package takes longer than many commands, so commands that need no cluster never import this module.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from msgspec import Struct
from urllib3.exceptions import LocationValueError

from kfjob.backends.kubeconfig import SERVICE_ACCOUNT, has_content, list_files
from kfjob.base.connections import load_certificate, make_pool, make_tls_context, trust_any_server
from kfjob.base.errors import Forbidden, Unreachable, UsageError
from kfjob.base.http import HttpClient
from kfjob.cluster.client import Client
from kfjob.cluster.transport import HttpTransport
from kfjob.redaction import remember_credential

DIAL_SECONDS = 40.0
"""Time for the API server, and for the kubelet behind it, to open a websocket."""


class Access(Struct, frozen=True, kw_only=True):
    """A configuration as it was read."""

    configuration: Any  # of the `kubernetes` package
    location: str  # the kubeconfig, or the folder of the service account
    context: str  # "" inside a pod
    namespace: str


Load = Callable[[], Access]
"""Reads the configuration again."""


class Connection(Struct, frozen=True, kw_only=True):
    """A client, and the context that it comes from."""

    client: Client
    namespace: str  # the context's
    context: str  # "" inside a pod


def connect(*, context: str | None = None, kubeconfig: str | Path | None = None) -> Connection:
    """Read the configuration. Nothing is sent yet.

    Raises:
        Unreachable: no cluster is configured, or the kubeconfig cannot be read.
        UsageError: the kubeconfig has no such context.
        Forbidden: the kubeconfig's credentials cannot be used, or its credential plugin gave none.
    """
    path = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if files := list_files({"KUBECONFIG": path}):
        load: Load = partial(_load_kubeconfig, files, context)
    elif kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        load = _load_service_account
    else:
        hint = "set KUBECONFIG; on EKS `aws eks update-kubeconfig --name CLUSTER` writes one"
        raise Unreachable("no cluster is configured", cause=f"there is no kubeconfig at `{path}`", hint=hint)
    access = load()
    credentials = ConfiguredCredentials(access, load)
    credentials.headers()  # an error now, and not in the first request
    server = access.configuration.host
    host = hide_login(server)
    if not server.startswith(("https://", "http://")):
        title, hint = f"`{host}` is not the address of an API server", "write `https://HOST:PORT`"
        raise Unreachable(title, location=access.location, hint=hint)
    http = HttpClient(_make_pool(access))
    dial = partial(_dial, access.configuration)
    transport = HttpTransport(http, server, credentials, waits_for=f"the API server `{host}`", dial=dial)
    return Connection(client=Client(transport, host=host), namespace=access.namespace, context=access.context)


def hide_login(url: str) -> str:
    """Return a URL without the user and the password in it."""
    scheme, separator, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _load_kubeconfig(files: list[Path], name: str | None) -> Access:
    configuration, location = Configuration(), os.pathsep.join(map(str, files))
    try:
        merged = KubeConfigMerger(os.pathsep.join(str(file) for file in files if has_content(file)) or location)
        loader = KubeConfigLoader(merged.config, config_base_path=None)
        contexts = {one["name"]: one for one in loader.list_contexts()}
        if name and name not in contexts:
            hint = f"it has {', '.join(f'`{one}`' for one in contexts)}"
            raise UsageError(f"there is no context `{name}` in the kubeconfig", location=location, hint=hint)
        loader.set_active_context(name)
        with _capture_errors() as errors:
            loader.load_and_set(configuration)
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, KeyError, ValueError) as err:
        hint = "`kubectl config view` shows what kubectl makes of it"
        raise Unreachable("the kubeconfig cannot be used", location=location, cause=str(err), hint=hint) from err
    if errors and not configuration.auth_settings() and not configuration.cert_file:
        title = "the kubeconfig's credential plugin gave no credentials"
        hint = "`kubectl get pods` runs the same plugin; is it installed and logged in?"
        raise Forbidden(title, location=location, cause="\n".join(errors), hint=hint)
    selected = loader.current_context
    configuration.proxy = _find_proxy(merged.config, selected["context"].get("cluster"))
    namespace = selected["context"].get("namespace") or "default"
    return Access(configuration=configuration, location=location, context=selected["name"], namespace=namespace)


def _find_proxy(kubeconfig: Any, name: str | None) -> str | None:
    """Return the `proxy-url` of a cluster, which the package up to version 35 does not read."""
    entry = kubeconfig["clusters"].get_with_name(name, safe=True)
    return entry["cluster"].value.get("proxy-url") if entry else None


@contextlib.contextmanager
def _capture_errors() -> Iterator[list[str]]:
    """Collect what the package logs about a failed credential plugin: it continues without credentials."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    collector, root = Collector(logging.ERROR), logging.getLogger()
    root.addHandler(collector)
    try:
        yield messages
    finally:
        root.removeHandler(collector)


def _load_service_account() -> Access:
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
    except (config.ConfigException, OSError) as err:
        hint = "give the pod a service account and let its token be mounted (`automountServiceAccountToken`)"
        raise Unreachable("this pod has no access to its cluster", cause=str(err), hint=hint) from err
    return Access(configuration=configuration, location=str(SERVICE_ACCOUNT), context="", namespace=namespace)


def _make_pool(access: Access) -> Any:
    """Return the connections to the API server, with the configuration's certificates and proxy."""
    settings = access.configuration
    try:
        context = make_tls_context(Path(settings.ssl_ca_cert).read_text() if settings.ssl_ca_cert else None)
        if not settings.verify_ssl:
            trust_any_server(context)
        if settings.cert_file:
            load_certificate(context, Path(settings.cert_file), settings.key_file and Path(settings.key_file))
        if settings.key_file:
            remember_credential(Path(settings.key_file).read_text())
        return make_pool(settings.host, context, proxy=settings.proxy, server_name=settings.tls_server_name)
    except (ssl.SSLError, LocationValueError, OSError, ValueError) as err:
        raise Unreachable("the kubeconfig cannot be used", location=access.location, cause=str(err)) from err


def _dial(configuration: Any, url: str, headers: Mapping[str, str]) -> Any:
    """Open a websocket with the configuration's certificates and proxy.

    The package's own `create_websocket` would send the token to the host that a redirect names.
    """
    import websocket
    from kubernetes.stream.ws_client import websocket_proxycare

    options: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE}
    options |= {"ca_certs": configuration.ssl_ca_cert} if configuration.ssl_ca_cert else {}
    options |= {"certfile": configuration.cert_file, "keyfile": configuration.key_file} if configuration.cert_file else {}
    options |= {"server_hostname": configuration.tls_server_name} if configuration.tls_server_name else {}
    if not configuration.verify_ssl or configuration.assert_hostname is False:
        options["check_hostname"] = False
    sent = {name: value for name, value in headers.items() if name in ("authorization", "sec-websocket-protocol")}
    connection: dict[str, Any] = {"header": sent, "redirect_limit": 0, "timeout": DIAL_SECONDS}
    if configuration.proxy or configuration.proxy_headers:
        connection = websocket_proxycare(connection, configuration, url, headers)
    socket: Any = websocket.WebSocket(sslopt=options)
    socket.connect(url, **connection)
    socket.settimeout(None)
    return socket


class ConfiguredCredentials:
    """The token or the password of a kubeconfig or a service account."""

    def __init__(self, access: Access, load: Load) -> None:
        """`load` reads the configuration again."""
        self._access = access
        self._load = load
        self._lock = threading.Lock()  # otherwise every thread starts the credential plugin when the token has expired

    def headers(self) -> Mapping[str, str]:
        """Return the header with the credential. The package renews a token of a plugin or a service account that expires.

        Raises:
            Forbidden: the credential cannot stand in a header. `http.client` would quote it in its error.
        """
        with self._lock:
            return self._read_headers()

    def renew(self, rejected: Mapping[str, str]) -> None:
        """Read the kubeconfig or the token's file again, or run the plugin: tokens are revoked, or replaced early."""
        with self._lock:
            if self._read_headers() == rejected:
                self._access = self._load()

    def _read_headers(self) -> dict[str, str]:
        headers = {}
        for setting in self._access.configuration.auth_settings().values():
            scheme, _, credential = str(setting["value"]).strip().partition(" ")
            headers["Authorization"] = f"{scheme} {credential.strip()}"
            _remember(scheme, credential.strip())
        if not all(text.isascii() and text.isprintable() for text in headers.values()):
            title, cause = "the credentials of the kubeconfig cannot be used", "its token has characters that no token has"
            hint = "write the token on one line, in ASCII"
            raise Forbidden(title, location=self._access.location, cause=cause, hint=hint)
        return headers


def _remember(scheme: str, credential: str) -> None:
    """Redact a credential from all output: a server may quote it in an error."""
    remember_credential(credential)
    if scheme == "Basic":
        with contextlib.suppress(ValueError):
            remember_credential(base64.b64decode(credential).decode().partition(":")[2])
