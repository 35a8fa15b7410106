"""Which backend, which namespace, which launch: what fills a plan's Context."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from kfjob.api.settings import Settings
from kfjob.backends import open as backends
from kfjob.backends.base import Backend, ClusterBackend
from kfjob.backends.open import open_machine
from kfjob.errors import Unreachable

if TYPE_CHECKING:
    from kfjob.plan import BackendName, Context

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Kubeconfig(Struct, frozen=True):
    """The little of a kubeconfig that is needed without talking to the cluster."""

    context: str
    namespace: str


def new_launch_id() -> str:
    """Unique for each launch, sorts by time, fits in a label: `20261121-083000-k3v9`."""
    from secrets import choice  # few commands need a name

    tail = "".join(choice("bcdfghjkmnpqrstvwxz23456789") for _ in range(4))
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{tail}"


def choose_backend(settings: Settings, *, notify: Callable[[str], None]) -> BackendName:
    """The one asked for, else kubernetes where a context exists, else this machine, and then `notice` is told."""
    if settings.backend == "local":
        return "local"
    if settings.backend == "kubernetes" or settings.context or find_kubeconfig_here():
        return "kubernetes"
    notify("no kubeconfig was found: running on this machine (`--backend local` says so without this line)")
    return "local"


def plan_context(settings: Settings, backend: BackendName, *, launch: str | None = None) -> Context:
    """What a plan is told from outside."""
    from kfjob.plan import DEFAULT_ETCD_IMAGE, Context

    return Context(
        backend=backend,
        launch=launch or new_launch_id(),
        namespace=namespace(settings, backend),
        etcd_image=settings.etcd_image or DEFAULT_ETCD_IMAGE,
    )


def namespace(settings: Settings, backend: BackendName) -> str:
    """The namespace asked for, else the kubeconfig context's, else `default`."""
    if settings.namespace:
        return settings.namespace
    found = find_kubeconfig_here(settings.context) if backend == "kubernetes" else None
    return found.namespace if found else "default"


def open_backend(settings: Settings, name: BackendName) -> Backend:
    """The backend, ready to use.

    Raises:
        Unreachable: no cluster is configured.
    """
    return open_cluster(settings) if name == "kubernetes" else open_machine(state=settings.state)


def open_cluster(settings: Settings) -> ClusterBackend:
    """Return the cluster that the settings select.

    Raises:
        Unreachable: no cluster is configured.
    """
    if not find_kubeconfig_here(settings.context):
        wanted = f"no context `{settings.context}` in" if settings.context else "no"
        raise Unreachable(
            f"{wanted} kubeconfig",
            cause="neither KUBECONFIG nor ~/.kube/config names a cluster, and this is not a pod",
            hint="`aws eks update-kubeconfig --name CLUSTER` writes one; `--backend local` runs on this machine",
        )
    return backends.open_cluster(context=settings.context)


def find_kubeconfig(environ: Mapping[str, str], context: str | None = None) -> Kubeconfig | None:
    """The context in force, as kubectl finds it: the first file that names one; in a pod, its service account.

    Raises:
        Unreachable: a kubeconfig cannot be read, or is not YAML.
    """
    files = [Path(p) for p in environ.get("KUBECONFIG", "").split(os.pathsep) if p] or [Path("~/.kube/config").expanduser()]
    documents = [document for file in files if file.is_file() for document in [_read(file)] if document]
    wanted = context or next((d["current-context"] for d in documents if d.get("current-context")), None)
    if not wanted:
        return _in_a_pod(environ) if context is None else None
    for document in documents:
        for entry in document.get("contexts") or []:
            if entry.get("name") == wanted:
                return Kubeconfig(wanted, (entry.get("context") or {}).get("namespace") or "default")
    return None


def find_kubeconfig_here(context: str | None = None) -> Kubeconfig | None:
    """`find_kubeconfig` for this process."""
    return find_kubeconfig(os.environ, context)


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parsed(file, file.stat().st_mtime_ns)
    except OSError as err:
        raise Unreachable(f"kubeconfig `{file}` cannot be read", cause=str(err)) from err


@lru_cache(maxsize=8)
def _parsed(file: Path, _changed_ns: int) -> dict[str, Any]:
    """Read once, however often a command asks."""
    import yaml

    from kfjob.spec.yaml_loader import Loader

    try:
        with file.open(encoding="utf-8") as text:
            data = yaml.load(text, Loader)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError) as err:
        raise Unreachable(f"kubeconfig `{file}` is not valid YAML", cause=str(err)) from err
    return data if isinstance(data, dict) else {}


def _in_a_pod(environ: Mapping[str, str]) -> Kubeconfig | None:
    file = SERVICE_ACCOUNT / "namespace"
    if environ.get("KUBERNETES_SERVICE_HOST") and file.is_file():
        return Kubeconfig("in-cluster", file.read_text(encoding="utf-8").strip() or "default")
    return None
