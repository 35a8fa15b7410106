"""The logins that `docker login`, `podman login` and credential helpers keep: read here, never written.

Docker's `config.json` (docs.docker.com/reference/cli/docker/login) and `auth.json` of containers
(containers-auth.json(5)), whose keys may go down to a repository.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kfjob.errors import Forbidden, UsageError
from kfjob.image.references import DOCKER_HUB
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, Secret

_HUB_KEY = "https://index.docker.io/v1/"
_HELPER_PATIENCE = 60.0  # seconds: some ask the user


def find_stored_login(registry: str, repository: str, environ: Mapping[str, str] = os.environ) -> Login | None:
    """The login for a repository, from the first file that has one.

    Raises:
        UsageError: a file is not what it should be.
        Forbidden: the credential helper that a file names is not there, or fails.
    """
    for file in _files(environ):
        if file.is_file() and (login := find_login(_read(file), registry, repository, where=str(file))):
            return login
    return None


def find_login(config: Mapping[str, Any], registry: str, repository: str, *, where: str) -> Login | None:
    """The login for a repository that such a document gives, by a helper or in itself.

    Raises:
        UsageError: what it holds for the repository cannot be read.
        Forbidden: its credential helper is not there, or fails.
    """
    for key in _keys(registry, repository):
        if helper := (config.get("credHelpers") or {}).get(key):
            return _asked(helper, key)
        if (entry := (config.get("auths") or {}).get(key)) and (login := _login(entry, where)):
            return login
    if store := config.get("credsStore"):
        return _asked(store, _HUB_KEY if registry == DOCKER_HUB else registry)
    return None


def _files(environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME") or "~").expanduser()
    if said := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(said)
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield home / ".config" / "containers" / "auth.json"


def _keys(registry: str, repository: str) -> Iterator[str]:
    """From the repository up to the host, then Docker's older forms."""
    parts = f"{registry}/{repository}".split("/")
    yield from ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    if registry == DOCKER_HUB:
        yield from (_HUB_KEY, "index.docker.io", "registry-1.docker.io")
    yield from (f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/")


def _login(entry: Mapping[str, Any], where: str) -> Login | None:
    if token := entry.get("identitytoken"):
        return Login(user=REFRESH_TOKEN, password=Secret(token))
    user, password = entry.get("username") or "", entry.get("password") or ""
    if said := entry.get("auth"):
        try:
            user, _, password = base64.b64decode(said, validate=True).decode().partition(":")
        except (ValueError, TypeError):
            raise UsageError("a stored login cannot be read", location=where, cause="its `auth` is not base64") from None
    return Login(user=user, password=Secret(password.rstrip("\0"))) if user else None


def _asked(helper: str, key: str) -> Login | None:
    """What a credential helper answers (docker-credential-helpers: the server on stdin, JSON on stdout)."""
    program = f"docker-credential-{helper}"
    hint = f"is it installed and on PATH? `echo {key} | {program} get` shows what it says"
    try:
        done = subprocess.run(
            [program, "get"], input=key, capture_output=True, text=True, timeout=_HELPER_PATIENCE, check=False
        )
        if done.returncode:
            if "credentials not found" in done.stdout:
                return None
            raise Forbidden(f"`{program}` gives no login for `{key}`", cause=done.stderr.strip() or None, hint=hint)
        said = json.loads(done.stdout)
        return Login(user=said["Username"], password=Secret(said["Secret"])) if said["Username"] else None
    except (OSError, subprocess.TimeoutExpired) as err:
        raise Forbidden(f"`{program}` gives no login for `{key}`", cause=str(err), hint=hint) from err
    except (ValueError, KeyError, TypeError):
        raise Forbidden(f"`{program}` gives no login for `{key}`", cause="its answer is not of the agreed form") from None


def _read(file: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        cause = str(err) if isinstance(err, OSError) else "it is not JSON"
        raise UsageError("the stored logins cannot be read", location=str(file), cause=cause) from None
    return config if isinstance(config, dict) else {}
