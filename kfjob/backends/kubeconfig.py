"""The current context of the kubeconfig, read without the kubernetes client."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from kfjob.base.errors import Unreachable
from kfjob.base.parsing import MAX_KUBECONFIG_BYTES, ParseError, read_document
from kfjob.source.yaml_loader import load_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeContext(Struct, frozen=True):
    """A context of the kubeconfig: its name and its namespace."""

    name: str
    namespace: str


class _Context(Struct, frozen=True):
    namespace: str | None = None


class _NamedContext(Struct, frozen=True):
    name: str
    context: _Context | None = None


class _KubeConfig(Struct, frozen=True, rename="kebab"):
    """The fields of a kubeconfig that kfjob itself reads."""

    current_context: str | None = None
    contexts: list[_NamedContext] | None = None


def list_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the kubeconfigs that exist, in the order of their precedence."""
    files = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [file for file in files or [Path("~/.kube/config").expanduser()] if file.exists()]


def find_kube_context(environ: Mapping[str, str], name: str | None = None) -> KubeContext | None:
    """Return the named or the current context as kubectl finds it; in a pod without a kubeconfig, its service account.

    Raises:
        Unreachable: a kubeconfig cannot be read, or is not YAML.
    """
    documents = [_read(file) for file in list_files(environ)]
    selected = name or next((document.current_context for document in documents if document.current_context), None)
    if not selected:
        return _find_service_account(environ) if name is None else None
    for document in documents:
        for entry in document.contexts or ():
            if entry.name == selected:
                return KubeContext(selected, (entry.context and entry.context.namespace) or "default")
    return None


def find_current_context(name: str | None = None) -> KubeContext | None:
    """Return what `find_kube_context` finds in the environment of this process."""
    return find_kube_context(os.environ, name)


def _read(file: Path) -> _KubeConfig:
    try:
        return convert(_load(file, file.stat().st_mtime_ns) or {}, _KubeConfig)
    except OSError as err:
        raise Unreachable(f"kubeconfig `{file}` cannot be read", cause=str(err)) from err
    except (ParseError, UnicodeDecodeError) as err:
        raise Unreachable(f"kubeconfig `{file}` is not valid YAML", cause=str(err)) from err
    except ValidationError as err:
        raise Unreachable(f"kubeconfig `{file}` is not valid", cause=str(err)) from err


def has_content(file: Path) -> bool:
    """Return whether a kubeconfig has more than comments: kubectl accepts an empty one.

    Raises:
        OSError, ParseError, UnicodeDecodeError: it cannot be read, or is not YAML.
    """
    return bool(_load(file, file.stat().st_mtime_ns))


@lru_cache(maxsize=8)
def _load(file: Path, _mtime_ns: int) -> Any:
    """Parse the file once, for all functions of a command that ask for it."""
    return load_yaml(read_document(file, max_bytes=MAX_KUBECONFIG_BYTES).decode())


def _find_service_account(environ: Mapping[str, str]) -> KubeContext | None:
    file = SERVICE_ACCOUNT / "namespace"
    if environ.get("KUBERNETES_SERVICE_HOST") and file.is_file():
        return KubeContext("in-cluster", read_document(file).decode().strip() or "default")
    return None
