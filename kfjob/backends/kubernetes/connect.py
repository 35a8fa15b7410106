"""Make a client from a kubeconfig, or from the service account of this pod. Only this module uses the `kubernetes` package.

kfjob uses its configuration, authentication and transport, not its generated models and API classes. What this module uses is
the same in versions 31 to 37 (36.0.0 sends no credentials). Importing the package takes 0.3 s up to version 35, which loads
700 models at once, so commands that need no cluster never import this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
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

from kfjob.backends.kubernetes.client import Client
from kfjob.backends.kubernetes.transport import CONNECTIONS, PooledTransport, add_keepalive
from kfjob.errors import Forbidden, Unreachable, UsageError

Load = Callable[[], tuple[Any, str, str]]
"""Reads the configuration again: the configuration, the context's name, the context's namespace."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


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
        hint = "set KUBECONFIG or give `--kubeconfig`; on EKS `aws eks update-kubeconfig --name CLUSTER` writes one"
        raise Unreachable("no cluster is configured", cause=f"there is no kubeconfig at `{path}`", hint=hint)
    configuration, name, namespace = load()
    if not configuration.host.startswith(("https://", "http://")):
        raise Unreachable(
            f"`{hide_login(configuration.host)}` is not the address of an API server",
            location=path,
            hint="write `https://HOST:PORT`",
        )
    return Connection(client=_client(configuration, load), namespace=namespace, context=name)


def _load_file(*, path: str, context: str | None) -> tuple[Any, str, str]:
    """Return the configuration, the context's name and the context's namespace."""
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
    return configuration, selected["name"], selected["context"].get("namespace") or "default"


def _join_full_files(path: str) -> str:
    """Return the list of files without empty ones, which kubectl accepts and the `kubernetes` package does not."""
    files = [part for part in path.split(os.pathsep) if part and _has_content(Path(part).expanduser())]
    return os.pathsep.join(files) or path


def _has_content(file: Path) -> bool:
    return file.exists() and any(line.strip() and not line.lstrip().startswith("#") for line in file.read_text().splitlines())


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


def _load_service_account() -> tuple[Any, str, str]:
    """Return the same from the pod's service account."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        return configuration, "", _POD_NAMESPACE.read_text().strip() or "default"
    except (config.ConfigException, OSError) as err:
        hint = "give the pod a service account and let its token be mounted (`automountServiceAccountToken`)"
        raise Unreachable("this pod has no access to its cluster", cause=str(err), hint=hint) from err


def _client(configuration: Any, load: Load) -> Client:
    configuration.connection_pool_maxsize = CONNECTIONS
    if configuration.no_proxy is None:  # versions up to 35 read the variable, then drop its value
        configuration.no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    pool = RESTClientObject(configuration).pool_manager
    options = pool.connection_pool_kw.get("socket_options") or HTTPConnection.default_socket_options
    pool.connection_pool_kw["socket_options"] = add_keepalive(list(options))
    return Client(
        PooledTransport(pool, configuration.host, ConfiguredCredentials(configuration, load, pool)),
        host=hide_login(configuration.host),
    )


class ConfiguredCredentials:
    """Credentials of a kubeconfig or a service account."""

    def __init__(self, configuration: Any, load: Load, pool: Any) -> None:
        """`load` reads the configuration again; `pool` is a `urllib3.PoolManager`, which presents the client's certificate."""
        self._configuration = configuration
        self._load = load
        self._pool = pool
        self._lock = threading.Lock()  # otherwise every thread starts the credential plugin when the token has expired

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token. The package renews a token whose end is known and has come."""
        with self._lock:
            return self._headers()

    def renew(self, rejected: Mapping[str, str]) -> None:
        """Read the kubeconfig or the token's file again, or run the plugin: tokens are revoked, or replaced early."""
        with self._lock:
            if self._headers() != rejected:
                return
            before, (self._configuration, _, _) = self._configuration, self._load()
            files = {"cert_file": self._configuration.cert_file, "key_file": self._configuration.key_file}
            if files["cert_file"] and files["cert_file"] != before.cert_file:
                self._pool.connection_pool_kw.update(files)  # for new connections

    def _headers(self) -> Mapping[str, str]:
        settings = self._configuration.auth_settings().values()
        return {one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]}


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
