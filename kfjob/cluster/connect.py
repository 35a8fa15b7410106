"""Make a client from a kubeconfig, or from the service account of this pod.

The `kubernetes` package is not used: importing it loads 700 models, which takes longer than most commands.
"""

from __future__ import annotations

import base64
import contextlib
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct
from urllib3.exceptions import LocationValueError

from kfjob.backends.kubeconfig import SERVICE_ACCOUNT, Selection, User, list_files, select_context
from kfjob.base.connections import load_certificate, make_pool, make_tls_context, trust_any_server
from kfjob.base.errors import Forbidden, KfjobError, Unreachable
from kfjob.base.http import HttpClient
from kfjob.base.parsing import read_document
from kfjob.cluster.client import Client
from kfjob.cluster.exec_plugin import MAX_CREDENTIAL_BYTES, get_credential, is_header_text, needs_renewal
from kfjob.cluster.transport import HttpTransport
from kfjob.redaction import remember_credential


class Access(Struct, frozen=True, kw_only=True):
    """An API server, how to trust it, and the user's credentials."""

    server: str
    location: str  # the kubeconfig, or the folder of the service account
    context: str  # "" inside a pod
    namespace: str
    authority: str | None = None  # PEM; None: the system's authorities
    is_trusted: bool = False  # any certificate is accepted
    server_name: str | None = None  # in the certificate
    proxy: str | None = None
    headers: Mapping[str, str]
    certificate: str = ""  # PEM, with its key
    expiry: float | None = None  # of the credentials, in seconds since 1970


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
    host = hide_login(access.server)
    if not access.server.startswith(("https://", "http://")):
        title, hint = f"`{host}` is not the address of an API server", "write `https://HOST:PORT`"
        raise Unreachable(title, location=access.location, hint=hint)
    try:
        tls = _make_tls_context(access)
        pool = make_pool(access.server, tls, proxy=access.proxy, server_name=access.server_name)
    except (ssl.SSLError, LocationValueError, OSError, ValueError) as err:
        raise Unreachable("the kubeconfig cannot be used", location=access.location, cause=str(err)) from err
    waits_for = f"the API server `{host}`"
    transport = HttpTransport(HttpClient(pool), access.server, RenewedCredentials(access, load, tls), waits_for=waits_for)
    return Connection(client=Client(transport, host=host), namespace=access.namespace, context=access.context)


def hide_login(url: str) -> str:
    """Return a URL without the user and the password in it."""
    scheme, separator, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _load_kubeconfig(files: list[Path], name: str | None) -> Access:
    selection = select_context(files, name)
    location = str(selection.user_file)
    try:
        return _make_access(selection)
    except (OSError, ValueError) as err:
        hint = "`kubectl config view` shows what kubectl makes of it"
        raise Unreachable("the kubeconfig cannot be used", location=location, cause=str(err), hint=hint) from err


def _make_access(selection: Selection) -> Access:
    """Return the access that a context gives.

    Raises:
        Forbidden: a credential cannot be one, or the plugin gives none.
        OSError, ValueError: a file cannot be read, or data is not base64.
    """
    cluster, user, expiry = selection.cluster, selection.user, None
    folder, location = selection.user_file.parent, str(selection.user_file)
    authority = _read(cluster.certificate_authority_data, cluster.certificate_authority, selection.cluster_file.parent)
    if user.exec and not (user.token or user.token_file):
        credential = get_credential(user.exec, cluster=cluster, authority=authority, folder=folder, location=location)
        certificate, expiry = credential.client_certificate_data + credential.client_key_data, credential.expiry
        user = User(token=credential.token)
    else:
        certificate = _read_certificate(user, folder)
        if user.auth_provider and not (certificate or user.token or user.token_file):
            hint = "kubectl has replaced `auth-provider` by credential plugins: get a new kubeconfig"
            raise Forbidden("kfjob cannot use the `auth-provider` of the kubeconfig", location=location, hint=hint)
    return Access(
        server=cluster.server,
        location=location,
        context=selection.context.name,
        namespace=selection.context.namespace,
        authority=authority or None,
        is_trusted=bool(cluster.insecure_skip_tls_verify),
        server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
        headers=_make_headers(user, folder, location),
        certificate=certificate,
        expiry=expiry,
    )


def _load_service_account() -> Access:
    """Return the access of the pod's service account (client-go rest.InClusterConfig)."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    location = str(SERVICE_ACCOUNT)
    try:
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip() or "default"
        authority, token = (SERVICE_ACCOUNT / "ca.crt").read_text(), (SERVICE_ACCOUNT / "token").read_text()
        headers = _make_headers(User(token=token), SERVICE_ACCOUNT, location)
    except OSError as err:
        hint = "give the pod a service account and let its token be mounted (`automountServiceAccountToken`)"
        raise Unreachable("this pod has no access to its cluster", cause=str(err), hint=hint) from err
    server = _format_server(host, port)
    return Access(server=server, location=location, context="", namespace=namespace, authority=authority, headers=headers)


def _format_server(host: str, port: str) -> str:
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _read(data: str | None, file: str | None, folder: Path) -> str:
    """Return the text of a field that holds base64, or of the file that another field names; "" without both."""
    if data:
        return base64.b64decode(data).decode(errors="replace")
    return read_document(folder / file, max_bytes=MAX_CREDENTIAL_BYTES).decode(errors="replace") if file else ""


def _read_certificate(user: User, folder: Path) -> str:
    """Return the client's certificate with its key; "" without one."""
    certificate = _read(user.client_certificate_data, user.client_certificate, folder)
    return certificate and f"{certificate}\n{_read(user.client_key_data, user.client_key, folder)}"


def _make_headers(user: User, folder: Path, location: str) -> dict[str, str]:
    """Return the header with the user's token or password; nothing shows them from now on, also if the server quotes them.

    Raises:
        Forbidden: the text cannot stand in a header. `http.client` would quote it in its error.
    """
    token = user.token or _read(None, user.token_file, folder)
    if token := token.strip():
        scheme, credential = "Bearer", token
    elif user.username:
        scheme, credential = "Basic", base64.b64encode(f"{user.username}:{user.password or ''}".encode()).decode()
        remember_credential(user.password or "")
    else:
        return {}
    remember_credential(credential)
    if not is_header_text(credential):
        cause, hint = "its token has characters that no token has", "write the token on one line, in ASCII"
        raise Forbidden("the credentials of the kubeconfig cannot be used", location=location, cause=cause, hint=hint)
    return {"Authorization": f"{scheme} {credential}"}


def _make_tls_context(access: Access) -> ssl.SSLContext:
    context = make_tls_context(access.authority)
    if access.is_trusted:
        trust_any_server(context)
    _present_certificate(context, access.certificate)
    return context


def _present_certificate(context: ssl.SSLContext, certificate: str) -> None:
    """Present the client's certificate in new connections. OpenSSL reads it from a file."""
    if certificate:
        remember_credential(certificate[certificate.rfind("-----BEGIN") :])
        with tempfile.TemporaryDirectory(prefix="kfjob-") as folder:  # for this user only
            file = Path(folder) / "client.pem"
            file.write_text(certificate)
            load_certificate(context, file)


class RenewedCredentials:
    """The credentials of a kubeconfig or a service account."""

    def __init__(self, access: Access, load: Load, tls: ssl.SSLContext) -> None:
        """`load` reads the configuration again; `tls` presents the client's certificate."""
        self._access = access
        self._time = time.time()  # of the load
        self._load = load
        self._tls = tls
        self._lock = threading.Lock()  # otherwise every thread starts the credential plugin when the token has expired

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token. A token that ends soon is renewed; if that fails, the server decides about it."""
        with self._lock:
            if needs_renewal(self._access.expiry, self._time):
                with contextlib.suppress(KfjobError):
                    self._reload()
            return self._access.headers

    def renew(self, rejected: Mapping[str, str]) -> None:
        """Read the kubeconfig or the token's file again, or run the plugin: tokens are revoked, or replaced early."""
        with self._lock:
            if self._access.headers == rejected:
                self._reload()

    def _reload(self) -> None:
        self._access = self._load()
        self._time = time.time()
        _present_certificate(self._tls, self._access.certificate)
