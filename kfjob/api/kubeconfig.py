"""The current context of the kubeconfig, read without the kubernetes client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from kfjob.errors import Unreachable
from kfjob.spec.yaml_loader import Loader, TooLargeError, check_depth

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeContext(Struct, frozen=True):
    """A context of the kubeconfig: its name and its namespace."""

    name: str
    namespace: str


def find_kube_context(environ: Mapping[str, str], name: str | None = None) -> KubeContext | None:
    """Return the named or the current context as kubectl finds it; in a pod without a kubeconfig, its service account.

    Raises:
        Unreachable: a kubeconfig cannot be read, or is not YAML.
    """
    files = [Path(p) for p in environ.get("KUBECONFIG", "").split(os.pathsep) if p] or [Path("~/.kube/config").expanduser()]
    documents = [document for file in files if file.is_file() for document in [_read(file)] if document]
    selected = name or next((d["current-context"] for d in documents if d.get("current-context")), None)
    if not selected:
        return _find_service_account(environ) if name is None else None
    for document in documents:
        for entry in document.get("contexts") or []:
            if entry.get("name") == selected:
                return KubeContext(selected, (entry.get("context") or {}).get("namespace") or "default")
    return None


def find_current_context(name: str | None = None) -> KubeContext | None:
    """Return what `find_kube_context` finds in the environment of this process."""
    return find_kube_context(os.environ, name)


def _read(file: Path) -> dict[str, Any]:
    try:
        return _parse(file, file.stat().st_mtime_ns)
    except OSError as err:
        raise Unreachable(f"kubeconfig `{file}` cannot be read", cause=str(err)) from err


@lru_cache(maxsize=8)
def _parse(file: Path, _mtime_ns: int) -> dict[str, Any]:
    """Parse the file once, for all functions of a command that ask for it."""
    try:
        text = file.read_text(encoding="utf-8")
        check_depth(text)
        data = yaml.load(text, Loader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, ValueError, TooLargeError) as err:
        raise Unreachable(f"kubeconfig `{file}` is not valid YAML", cause=str(err)) from err
    return data if isinstance(data, dict) else {}


def _find_service_account(environ: Mapping[str, str]) -> KubeContext | None:
    file = SERVICE_ACCOUNT / "namespace"
    if environ.get("KUBERNETES_SERVICE_HOST") and file.is_file():
        return KubeContext("in-cluster", file.read_text(encoding="utf-8").strip() or "default")
    return None
