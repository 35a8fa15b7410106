"""Read the logins that `docker login`, `podman login` and credential helpers store. Nothing is written.

The files are Docker's `config.json` (docs.docker.com/reference/cli/docker/login), and `auth.json` of containers
(containers-auth.json(5)), whose keys may name a repository.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from kfjob.base.common_types import JsonMapping
from kfjob.base.errors import Forbidden, UsageError
from kfjob.base.parsing import ParseError, decode_json, parse_json, read_document
from kfjob.base.programs import TooMuchOutputError, run_program
from kfjob.base.units import MIB
from kfjob.image.references import DOCKER_HUB
from kfjob.image.registry.secrets import REFRESH_TOKEN, Login, Secret

HUB_KEY = "https://index.docker.io/v1/"
"""Docker Hub's key in these files."""
HELPER_SECONDS = 60.0
"""Timeout of a credential helper; some of them ask the user."""
MAX_HELPER_BYTES = MIB
"""Size of a credential helper's output."""
MAX_CONFIG_BYTES = 4 * MIB
"""Size of a file of logins."""


class _Entry(msgspec.Struct):
    auth: str | None = None
    username: str | None = None
    password: str | None = None
    identitytoken: str | None = None


class _Logins(msgspec.Struct):
    """The fields of a configuration that name logins."""

    auths: dict[str, _Entry | None] | None = None
    helpers: dict[str, str] | None = msgspec.field(default=None, name="credHelpers")
    store: str | None = msgspec.field(default=None, name="credsStore")


class _HelperLogin(msgspec.Struct, rename="pascal"):
    username: str
    secret: str


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
    try:
        logins = msgspec.convert(config, _Logins)
    except msgspec.ValidationError as err:
        raise UsageError("the stored logins cannot be read", location=location, cause=str(err)) from None
    for key in _list_keys(registry, repository):
        if helper := (logins.helpers or {}).get(key):
            return _run_helper(helper, key)
        if (entry := (logins.auths or {}).get(key)) and (login := _parse_entry(entry, location)):
            return login
    if logins.store:
        return _run_helper(logins.store, HUB_KEY if registry == DOCKER_HUB else registry)
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


def _parse_entry(entry: _Entry, location: str) -> Login | None:
    if entry.identitytoken:
        return Login(user=REFRESH_TOKEN, password=Secret(entry.identitytoken))
    user, password = entry.username or "", entry.password or ""
    if entry.auth:
        try:
            user, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except ValueError:
            raise UsageError("a stored login cannot be read", location=location, cause="its `auth` is not base64") from None
    return Login(user=user, password=Secret(password.rstrip("\0"))) if user else None


def _run_helper(helper: str, key: str) -> Login | None:
    """Return the login of a credential helper (docker-credential-helpers: the server on stdin, JSON on stdout)."""
    program = f"docker-credential-{helper}"
    title = f"`{program}` returned no login for `{key}`"
    hint = f"check that it is on PATH; `echo {key} | {program} get` shows its output"
    try:
        output = run_program([program, "get"], stdin=key, seconds=HELPER_SECONDS, max_bytes=MAX_HELPER_BYTES)
    except TooMuchOutputError:
        raise Forbidden(title, cause=f"it printed more than {MAX_HELPER_BYTES // MIB} MiB", hint=hint) from None
    except TimeoutError:
        raise Forbidden(title, cause=f"it has not ended after {HELPER_SECONDS:g} s", hint=hint) from None
    except (OSError, ValueError) as err:
        raise Forbidden(title, cause=str(err), hint=hint) from err
    if output.code:
        if "credentials not found" in output.stdout:
            return None
        raise Forbidden(title, cause=output.stderr.strip() or None, hint=hint)
    try:
        login = decode_json(output.stdout, _HelperLogin)
    except ParseError:
        raise Forbidden(title, cause="its output is not a login in JSON") from None
    return Login(user=login.username, password=Secret(login.secret)) if login.username else None


def _read_config(file: Path) -> JsonMapping:
    try:
        config = parse_json(read_document(file, max_bytes=MAX_CONFIG_BYTES))
    except OSError as err:
        raise UsageError("the stored logins cannot be read", location=str(file), cause=str(err)) from None
    except ParseError:  # its message may quote a secret
        raise UsageError("the stored logins cannot be read", location=str(file), cause="it is not JSON") from None
    return config if isinstance(config, dict) else {}
