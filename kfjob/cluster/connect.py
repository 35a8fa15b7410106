"""Make a client from a kubeconfig, or from the service account of this pod. Only this module uses the `kubernetes` package.

kfjob uses its configuration, authentication and transport, not its generated models and API classes. What this module uses is
the same in versions 31 to 37 (36.0.0 sends no credentials). Importing the package takes 0.3 s up to version 35, which loads
700 models at once, so commands that need no cluster never import this module.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from msgspec import Struct
from urllib3.connection import HTTPConnection

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Forbidden, KfjobError, Unreachable, UsageError
from kfjob.base.parsing import MAX_KUBECONFIG_BYTES, read_document
from kfjob.cluster.client import Client
from kfjob.cluster.credentials import check_files, make_headers, prepare_user
from kfjob.cluster.exec_plugin import Credential, get_credential, needs_renewal
from kfjob.cluster.transport import CONNECTIONS, PooledTransport, add_keepalive
from kfjob.redaction import remember_credential

_OTHER_CREDENTIALS = {"auth-provider", "token", "tokenFile"}
"""Fields of a user that the `kubernetes` package prefers to a credential plugin."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Loaded(Struct, frozen=True, kw_only=True):
    """A configuration as it was read."""

    configuration: Any  # of the `kubernetes` package
    location: str  # the kubeconfig, or the pod's service account
    context: str
    namespace: str
    expiry: float | None = None
    """When the token of a credential plugin ends, in seconds since 1970."""


Load = Callable[[], Loaded]
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
        Forbidden: the kubeconfig's credential plugin gave no credentials.
    """
    path = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if any(Path(part).expanduser().exists() for part in path.split(os.pathsep) if part):
        load: Load = partial(_load_file, path=path, context=context)
    elif kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        load = _load_service_account
    else:
        hint = "set KUBECONFIG; on EKS `aws eks update-kubeconfig --name CLUSTER` writes one"
        raise Unreachable("no cluster is configured", cause=f"there is no kubeconfig at `{path}`", hint=hint)
    loaded = load()
    configuration = loaded.configuration
    if not configuration.host.startswith(("https://", "http://")):
        raise Unreachable(
            f"`{hide_login(configuration.host)}` is not the address of an API server",
            location=path,
            hint="write `https://HOST:PORT`",
        )
    return Connection(client=_client(loaded, load), namespace=loaded.namespace, context=loaded.context)


def _load_file(*, path: str, context: str | None) -> Loaded:
    """Return the configuration of a context. A credential plugin runs here, and not in the `kubernetes` package."""
    configuration = Configuration()
    problem = "the kubeconfig cannot be used"
    try:
        files = config.kube_config.KubeConfigMerger(_join_full_files(path))  # `load_kube_config` does not return the context
        loader = config.kube_config.KubeConfigLoader(
            config_dict=files.config, config_base_path=None, config_persister=files.save_changes
        )
        contexts = loader.list_contexts()
        selected = next((one for one in contexts if one["name"] == context), None) if context else loader.current_context
        if selected is None:
            names = ", ".join(f"`{one['name']}`" for one in contexts)
            raise UsageError(f"there is no context `{context}` in the kubeconfig", location=path, hint=f"it has {names}")
        credential = _prepare_credentials(files.config, selected["context"])
        with _capture_errors() as errors:
            loader.set_active_context(context)
            loader.load_and_set(configuration)
        if proxy := _find_proxy(files.config, selected["context"].get("cluster")):
            configuration.proxy, configuration.no_proxy = proxy, ""
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, KeyError, ValueError) as err:
        raise Unreachable(
            problem, location=path, cause=str(err), hint="`kubectl config view` shows what kubectl makes of it"
        ) from err
    if errors and not configuration.auth_settings() and not configuration.cert_file:
        hint = "`kubectl get pods` runs the same plugin; is it installed and logged in?"
        raise Forbidden(
            "the kubeconfig's credential plugin gave no credentials", location=path, cause="\n".join(errors), hint=hint
        )
    return Loaded(
        configuration=configuration,
        location=path,
        context=selected["name"],
        namespace=selected["context"].get("namespace") or "default",
        expiry=credential.expiry if credential else None,
    )


def _prepare_credentials(kubeconfig: Any, context: JsonMapping) -> Credential | None:
    """Check the credentials and the files of a context; replace a credential plugin by what it prints, and return that.

    Raises:
        Forbidden: the plugin gives no credential, or a credential cannot be one.
        OSError, ValueError: a file cannot be read, is not a regular file or is too large.
    """
    user = kubeconfig["users"].get_with_name(context.get("user"), safe=True)
    cluster = kubeconfig["clusters"].get_with_name(context.get("cluster"), safe=True)
    user_settings = (user.value.get("user") if user is not None else None) or {}
    cluster_settings = (cluster.value.get("cluster") if cluster is not None else None) or {}
    if not isinstance(user_settings, dict) or not isinstance(cluster_settings, dict):
        return None
    if cluster is not None:
        check_files(user_settings, cluster_settings, folder=Path(cluster.path).parent)
    if user is None:
        return None
    prepare_user(user_settings, folder=Path(user.path).parent, location=user.path)
    if not user_settings.get("exec") or _OTHER_CREDENTIALS & user_settings.keys():
        return None
    credential = get_credential(
        user_settings["exec"], cluster=cluster_settings, folder=Path(user.path).parent, location=user.path
    )
    credential.write_to(user_settings)
    return credential


def _join_full_files(path: str) -> str:
    """Return the list of files without empty ones, which kubectl accepts and the `kubernetes` package does not."""
    files = [part for part in path.split(os.pathsep) if part and _has_content(Path(part).expanduser())]
    return os.pathsep.join(files) or path


def _has_content(file: Path) -> bool:
    if not file.exists():
        return False
    lines = read_document(file, max_bytes=MAX_KUBECONFIG_BYTES).splitlines()
    return any(line.strip() and not line.lstrip().startswith(b"#") for line in lines)


def _find_proxy(kubeconfig: Any, name: str | None) -> str | None:
    """Return the `proxy-url` of a cluster, which the `kubernetes` package up to version 35 does not read."""
    entry = kubeconfig["clusters"].get_with_name(name, safe=True)
    cluster = entry["cluster"] if entry is not None and "cluster" in entry else {}
    return str(cluster["proxy-url"]) if "proxy-url" in cluster else None


def hide_login(url: str) -> str:
    """Return a URL without the user and the password in it."""
    scheme, separator, rest = url.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def _load_service_account() -> Loaded:
    """Return the configuration of the pod's service account."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        namespace = _POD_NAMESPACE.read_text().strip() or "default"
        return Loaded(configuration=configuration, location=str(_POD_NAMESPACE.parent), context="", namespace=namespace)
    except (config.ConfigException, OSError) as err:
        hint = "give the pod a service account and let its token be mounted (`automountServiceAccountToken`)"
        raise Unreachable("this pod has no access to its cluster", cause=str(err), hint=hint) from err


def _client(loaded: Loaded, load: Load) -> Client:
    configuration = loaded.configuration
    _remember_credentials(configuration)
    make_headers(configuration.auth_settings(), location=loaded.location)  # an error now, and not in the first request
    configuration.connection_pool_maxsize = CONNECTIONS
    if configuration.no_proxy is None:  # versions up to 35 read the variable, then drop its value
        configuration.no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    pool = RESTClientObject(configuration).pool_manager
    options = pool.connection_pool_kw.get("socket_options") or HTTPConnection.default_socket_options
    pool.connection_pool_kw["socket_options"] = add_keepalive(list(options))
    return Client(
        PooledTransport(pool, configuration.host, ConfiguredCredentials(loaded, load, pool)),
        host=hide_login(configuration.host),
    )


def _remember_credentials(configuration: Any) -> None:
    """Redact the token, the password and the client key from all output: a server may quote them in an error."""
    for setting in configuration.auth_settings().values():
        scheme, _, credential = str(setting["value"]).strip().partition(" ")
        remember_credential(credential.strip())
        if scheme == "Basic":
            with contextlib.suppress(ValueError):
                remember_credential(base64.b64decode(credential).decode().partition(":")[2])
    if configuration.key_file:
        with contextlib.suppress(OSError, ValueError):
            remember_credential(read_document(Path(configuration.key_file)).decode())


class ConfiguredCredentials:
    """Credentials of a kubeconfig or a service account."""

    def __init__(self, loaded: Loaded, load: Load, pool: Any) -> None:
        """`load` reads the configuration again; `pool` is a `urllib3.PoolManager`, which presents the client's certificate."""
        self._loaded = loaded
        self._time = time.time()  # of the load
        self._load = load
        self._pool = pool
        self._lock = threading.Lock()  # otherwise every thread starts the credential plugin when the token has expired

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token. A token that ends soon is renewed; if that fails, the server decides about it."""
        with self._lock:
            if needs_renewal(self._loaded.expiry, self._time):
                with contextlib.suppress(KfjobError):
                    self._reload()
            return self._headers()

    def renew(self, rejected: Mapping[str, str]) -> None:
        """Read the kubeconfig or the token's file again, or run the plugin: tokens are revoked, or replaced early."""
        with self._lock:
            if self._headers() != rejected:
                return
            self._reload()

    def _reload(self) -> None:
        before, self._loaded = self._loaded.configuration, self._load()
        self._time = time.time()
        configuration = self._loaded.configuration
        _remember_credentials(configuration)
        files = {"cert_file": configuration.cert_file, "key_file": configuration.key_file}
        if files["cert_file"] and files["cert_file"] != before.cert_file:
            self._pool.connection_pool_kw.update(files)  # for new connections

    def _headers(self) -> Mapping[str, str]:
        return make_headers(self._loaded.configuration.auth_settings(), location=self._loaded.location)


@contextlib.contextmanager
def _capture_errors() -> Iterator[list[str]]:
    """Collect what the `kubernetes` package logs about a failed credential plugin: it continues without credentials."""
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
