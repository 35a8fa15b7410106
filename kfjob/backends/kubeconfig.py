"""Read kubeconfigs as kubectl does: of several files, the first that names something decides (client-go tools/clientcmd)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert, field

from kfjob.base.errors import Unreachable, UsageError
from kfjob.base.parsing import MAX_KUBECONFIG_BYTES, ParseError, read_document
from kfjob.source.yaml_loader import load_yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Cluster(Struct, frozen=True, rename="kebab", omit_defaults=True):
    """An API server and how to trust it."""

    server: str = ""
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    extensions: list[Any] | None = None


class User(Struct, frozen=True, rename="kebab"):
    """The credentials of a user, or the plugin that prints them."""

    token: str | None = None
    token_file: str | None = field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: Any = None
    auth_provider: Any = None


class Context(Struct, frozen=True):
    """A cluster with a user and a namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str | None = None


class _NamedCluster(Struct, frozen=True):
    name: str
    cluster: Cluster | None = None


class _NamedUser(Struct, frozen=True):
    name: str
    user: User | None = None


class _NamedContext(Struct, frozen=True):
    name: str
    context: Context | None = None


class _File(Struct, frozen=True, rename="kebab"):
    """The fields of a kubeconfig that kfjob uses."""

    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class KubeContext(Struct, frozen=True):
    """A context of the kubeconfig: its name and its namespace."""

    name: str
    namespace: str


class Selection(Struct, frozen=True, kw_only=True):
    """A context with its cluster and its user, and the files that hold them. Paths in them are relative to these files."""

    context: KubeContext
    cluster: Cluster
    cluster_file: Path
    user: User
    user_file: Path


def list_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the kubeconfigs that exist, in the order of their precedence."""
    files = [Path(part).expanduser() for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [file for file in files or [Path("~/.kube/config").expanduser()] if file.exists()]


def find_kube_context(environ: Mapping[str, str], name: str | None = None) -> KubeContext | None:
    """Return the named or the current context as kubectl finds it; in a pod without a kubeconfig, its service account.

    Raises:
        Unreachable: a kubeconfig cannot be read, or is not valid.
    """
    configs = [config for _, config in _read_files(list_files(environ))]
    selected = name or _find_current_name(configs)
    if not selected:
        return _find_service_account(environ) if name is None else None
    entries = (entry for config in configs for entry in config.contexts or () if entry.name == selected)
    return next((_describe(entry.name, entry.context) for entry in entries), None)


def find_current_context(name: str | None = None) -> KubeContext | None:
    """Return what `find_kube_context` finds in the environment of this process."""
    return find_kube_context(os.environ, name)


def select_context(files: Sequence[Path], name: str | None) -> Selection:
    """Return the named or the current context, with its cluster and its user.

    Raises:
        UsageError: there is no such context.
        Unreachable: a kubeconfig cannot be read or is not valid, or it has no cluster for the context.
    """
    location = os.pathsep.join(map(str, files))
    configs = list(_read_files(files))
    first_last = list(reversed(configs))
    contexts = {one.name: one.context or Context() for _, config in first_last for one in config.contexts or ()}
    clusters = {one.name: (file, one.cluster) for file, config in first_last for one in config.clusters or ()}
    users = {one.name: (file, one.user) for file, config in first_last for one in config.users or ()}
    selected = name or _find_current_name([config for _, config in configs]) or ""
    if selected not in contexts:
        hint = f"it has {', '.join(f'`{name}`' for name in contexts)}" if contexts else None
        title = f"there is no context `{selected}` in the kubeconfig" if selected else "the kubeconfig has no current context"
        raise UsageError(title, location=location, hint=hint)
    context = contexts[selected]
    cluster_file, cluster = clusters.get(context.cluster, (files[0], None))
    user_file, user = users.get(context.user, (files[0], None))
    if cluster is None:
        raise Unreachable(f"context `{selected}` has no cluster in the kubeconfig", location=location)
    return Selection(
        context=_describe(selected, context),
        cluster=cluster,
        cluster_file=cluster_file,
        user=user or User(),
        user_file=user_file,
    )


def _find_current_name(configs: Sequence[_File]) -> str | None:
    return next((config.current_context for config in configs if config.current_context), None)


def _describe(name: str, context: Context | None) -> KubeContext:
    return KubeContext(name, (context and context.namespace) or "default")


def _read_files(files: Sequence[Path]) -> Iterator[tuple[Path, _File]]:
    for file in files:
        try:
            yield file, _parse(file, file.stat().st_mtime_ns)
        except (OSError, ParseError, UnicodeDecodeError, ValidationError) as err:
            hint = "`kubectl config view` shows what kubectl makes of it"
            raise Unreachable(f"kubeconfig `{file}` cannot be used", cause=str(err), hint=hint) from err


@lru_cache(maxsize=8)
def _parse(file: Path, _mtime_ns: int) -> _File:
    """Parse the file once, for all functions of a command that ask for it."""
    return convert(load_yaml(read_document(file, max_bytes=MAX_KUBECONFIG_BYTES).decode()) or {}, _File)


def _find_service_account(environ: Mapping[str, str]) -> KubeContext | None:
    file = SERVICE_ACCOUNT / "namespace"
    if environ.get("KUBERNETES_SERVICE_HOST") and file.is_file():
        return KubeContext("in-cluster", read_document(file).decode().strip() or "default")
    return None
