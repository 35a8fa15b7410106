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
from kfjob.backends.kubernetes.transport import CONNECTIONS, PooledTransport, keepalive
from kfjob.errors import Forbidden, Unreachable, UsageError

Load = Callable[[], tuple[Any, str, str]]
"""Reads the configuration anew: it, the context's name, its namespace."""
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class Connection(Struct, frozen=True, kw_only=True):
    """A client, and what the kubeconfig says beside."""

    client: Client
    namespace: str  # of the context
    context: str  # "" inside a pod


def connect(*, context: str | None = None, kubeconfig: str | Path | None = None) -> Connection:
    """Read the configuration; nothing is sent yet.

    Raises:
        Unreachable: no cluster is configured, or the kubeconfig cannot be read.
        UsageError: it has no such context.
        Forbidden: its credential plugin gave no credentials.
    """
    path = str(kubeconfig or os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if any(Path(part).expanduser().exists() for part in path.split(os.pathsep) if part):
        load: Load = partial(_from_file, path=path, wanted=context)
    elif kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        load = _from_pod
    else:
        hint = "set KUBECONFIG or give `--kubeconfig`; on EKS `aws eks update-kubeconfig --name CLUSTER` writes one"
        raise Unreachable("no cluster is configured", cause=f"there is no kubeconfig at `{path}`", hint=hint)
    configuration, name, namespace = load()
    if not configuration.host.startswith(("https://", "http://")):
        raise Unreachable(
            f"`{configuration.host}` is not the address of an API server", location=path, hint="write `https://HOST:PORT`"
        )
    return Connection(client=_client(configuration, load), namespace=namespace, context=name)


def _from_file(*, path: str, wanted: str | None) -> tuple[Any, str, str]:
    """The configuration, the context's name and its namespace."""
    configuration = Configuration()
    problem = "the kubeconfig cannot be used"
    try:
        files = config.kube_config.KubeConfigMerger(path)  # read once: `load_kube_config` would not tell the context
        loader = config.kube_config.KubeConfigLoader(
            config_dict=files.config, config_base_path=None, config_persister=files.save_changes
        )
        contexts = loader.list_contexts()
        chosen = next((one for one in contexts if one["name"] == wanted), None) if wanted else loader.current_context
        if chosen is None:
            known = ", ".join(f"`{one['name']}`" for one in contexts)
            raise UsageError(f"there is no context `{wanted}` in the kubeconfig", location=path, hint=f"it has {known}")
        with _said_aside() as said:
            loader.set_active_context(wanted)
            loader.load_and_set(configuration)
    except (config.ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, KeyError, ValueError) as err:
        raise Unreachable(
            problem, location=path, cause=str(err), hint="`kubectl config view` shows what kubectl makes of it"
        ) from err
    if said and not configuration.auth_settings() and not configuration.cert_file:
        hint = "`kubectl get pods` runs the same plugin; is it installed and logged in?"
        raise Forbidden(
            "the kubeconfig's credential plugin gave no credentials", location=path, cause="\n".join(said), hint=hint
        )
    return configuration, chosen["name"], chosen["context"].get("namespace") or "default"


def _from_pod() -> tuple[Any, str, str]:
    """The same for the pod's service account."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
        return configuration, "", _POD_NAMESPACE.read_text().strip() or "default"
    except (config.ConfigException, OSError) as err:
        hint = "give the pod a service account and let its token be mounted (`automountServiceAccountToken`)"
        raise Unreachable("this pod has no access to its cluster", cause=str(err), hint=hint) from err


def _client(configuration: Any, load: Load) -> Client:
    configuration.connection_pool_maxsize = CONNECTIONS
    if not configuration.no_proxy:  # versions up to 35 read it and then forget it
        configuration.no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
    pool = RESTClientObject(configuration).pool_manager
    options = pool.connection_pool_kw.get("socket_options") or HTTPConnection.default_socket_options
    pool.connection_pool_kw["socket_options"] = keepalive(list(options))
    return Client(PooledTransport(pool, configuration.host, Configured(configuration, load, pool)), host=configuration.host)


class Configured:
    """Credentials of a kubeconfig or a service account."""

    def __init__(self, configuration: Any, load: Load, pool: Any) -> None:
        """`load` reads the configuration anew; `pool` is a `urllib3.PoolManager`, which presents the client's certificate."""
        self._configuration = configuration
        self._load = load
        self._pool = pool
        self._lock = threading.Lock()  # or every thread starts the credential plugin when the token has expired

    def headers(self) -> Mapping[str, str]:
        """The token; one whose end is known and has come is renewed by the package."""
        with self._lock:
            return self._headers()

    def renew(self, refused: Mapping[str, str]) -> None:
        """Read the kubeconfig or the token's file anew, or run the plugin: tokens are revoked, or replaced early."""
        with self._lock:
            if self._headers() != refused:
                return
            before, (self._configuration, _, _) = self._configuration, self._load()
            files = {"cert_file": self._configuration.cert_file, "key_file": self._configuration.key_file}
            if files["cert_file"] and files["cert_file"] != before.cert_file:
                self._pool.connection_pool_kw.update(files)  # of new connections

    def _headers(self) -> Mapping[str, str]:
        settings = self._configuration.auth_settings().values()
        return {one["key"]: one["value"] for one in settings if one["in"] == "header" and one["value"]}


@contextlib.contextmanager
def _said_aside() -> Iterator[list[str]]:
    """What the `kubernetes` package logs about a credential plugin that failed: it goes on without credentials."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    listener, root = Listener(logging.ERROR), logging.getLogger()
    root.addHandler(listener)
    try:
        yield said
    finally:
        root.removeHandler(listener)
