"""Read the logins that `docker login`, `podman login` and credential helpers store. Nothing is written.

The files are Docker's `config.json` (docs.docker.com/reference/cli/docker/login), and `auth.json` of containers
(containers-auth.json(5)), whose keys may name a repository.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from kfjob.common_types import JsonMapping
from kfjob.errors import Forbidden, UsageError
from kfjob.image.references import DOCKER_HUB
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, Secret

HUB_KEY = "https://index.docker.io/v1/"
"""Docker Hub's key in these files."""
_HELPER_SECONDS = 60.0  # some helpers ask the user


def find_stored_login(registry: str, repository: str, environ: Mapping[str, str] = os.environ) -> Login | None:
    """Return the login for a repository from the first file that has one.

    Raises:
        UsageError: a file cannot be read.
        Forbidden: a credential helper is missing or fails.
    """
    for file in _list_files(environ):
        if file.is_file() and (login := find_login(_read_config(file), registry, repository, location=str(file))):
            return login
    return None


def find_login(config: JsonMapping, registry: str, repository: str, *, location: str) -> Login | None:
    """Return the login for a repository from a configuration, or from a credential helper that the configuration names.

    Raises:
        UsageError: the stored login cannot be read.
        Forbidden: the credential helper is missing or fails.
    """
    for key in _list_keys(registry, repository):
        if helper := (config.get("credHelpers") or {}).get(key):
            return _run_helper(helper, key)
        if (entry := (config.get("auths") or {}).get(key)) and (login := _parse_entry(entry, location)):
            return login
    if store := config.get("credsStore"):
        return _run_helper(store, HUB_KEY if registry == DOCKER_HUB else registry)
    return None


def _list_files(environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(environ.get("HOME") or "~").expanduser()
    if file := environ.get("REGISTRY_AUTH_FILE"):
        yield Path(file)
    yield Path(environ.get("DOCKER_CONFIG") or home / ".docker") / "config.json"
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime) / "containers" / "auth.json"
    yield home / ".config" / "containers" / "auth.json"


def _list_keys(registry: str, repository: str) -> Iterator[str]:
    """Yield the keys from the repository up to the host, then Docker's older forms."""
    parts = f"{registry}/{repository}".split("/")
    yield from ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    if registry == DOCKER_HUB:
        yield from (HUB_KEY, "index.docker.io", "registry-1.docker.io")
    yield from (f"https://{registry}", f"https://{registry}/v1/", f"https://{registry}/v2/")


def _parse_entry(entry: JsonMapping, location: str) -> Login | None:
    if token := entry.get("identitytoken"):
        return Login(user=REFRESH_TOKEN, password=Secret(token))
    user, password = entry.get("username") or "", entry.get("password") or ""
    if auth := entry.get("auth"):
        try:
            user, _, password = base64.b64decode(auth, validate=True).decode().partition(":")
        except (ValueError, TypeError):
            raise UsageError("a stored login cannot be read", location=location, cause="its `auth` is not base64") from None
    return Login(user=user, password=Secret(password.rstrip("\0"))) if user else None


def _run_helper(helper: str, key: str) -> Login | None:
    """Return the login of a credential helper (docker-credential-helpers: the server on stdin, JSON on stdout)."""
    program = f"docker-credential-{helper}"
    title = f"`{program}` returned no login for `{key}`"
    hint = f"check that it is on PATH; `echo {key} | {program} get` shows its output"
    try:
        process = subprocess.run(
            [program, "get"], input=key, capture_output=True, text=True, timeout=_HELPER_SECONDS, check=False
        )
        if process.returncode:
            if "credentials not found" in process.stdout:
                return None
            raise Forbidden(title, cause=process.stderr.strip() or None, hint=hint)
        login = json.loads(process.stdout)
        return Login(user=login["Username"], password=Secret(login["Secret"])) if login["Username"] else None
    except (OSError, subprocess.TimeoutExpired) as err:
        raise Forbidden(title, cause=str(err), hint=hint) from err
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Forbidden(title, cause="its output is not a login in JSON") from None


def _read_config(file: Path) -> JsonMapping:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        cause = str(err) if isinstance(err, OSError) else "it is not JSON"
        raise UsageError("the stored logins cannot be read", location=str(file), cause=cause) from None
    return config if isinstance(config, dict) else {}
