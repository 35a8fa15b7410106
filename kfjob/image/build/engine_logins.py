"""Lend an engine the logins for base images in ECR. Engines pull base images themselves.

An engine receives a login in a file that only this user can read, in memory where the machine has such a folder, and that is
deleted when the build ends. The user's own configuration stays in effect.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kfjob.base.common_types import JsonObject
from kfjob.base.file_access import name_file
from kfjob.base.parsing import ParseError, parse_json_object, read_document
from kfjob.image.build.engines import Engine
from kfjob.image.registry.secrets import Login

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp creates a folder in it


@contextlib.contextmanager
def lend_logins(
    logins: Mapping[str, Callable[[], Login | None]], engine: Engine
) -> Iterator[tuple[dict[str, str], Path | None]]:
    """Provide logins by registry until the block ends, as variables for the engine or as an authfile."""
    if not logins:
        yield {}, None
        return
    folder = Path(tempfile.mkdtemp(prefix="kfjob-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None))
    try:  # mkdtemp creates the folder with mode 700
        file = folder / "config.json"
        with name_file(file), os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(_add_logins(_copy_user_config(folder, engine), logins), stream)
        yield ({}, file) if engine.takes_authfile else ({"DOCKER_CONFIG": str(folder)}, None)
    finally:
        shutil.rmtree(folder)


def _add_logins(config: JsonObject, logins: Mapping[str, Callable[[], Login | None]]) -> JsonObject:
    auths, helpers = dict(config.get("auths") or {}), dict(config.get("credHelpers") or {})
    for registry, find_login in logins.items():
        if login := find_login():
            text = f"{login.user}:{login.password.reveal()}"
            auths[registry] = {"auth": base64.b64encode(text.encode()).decode()}
            helpers.pop(registry, None)
    return config | {"auths": auths, "credHelpers": helpers}


def _copy_user_config(folder: Path, engine: Engine) -> JsonObject:
    """Return the user's configuration, and link the rest of docker's folder (contexts, plugins) into `folder`."""
    home = Path(os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser())
    if engine.takes_authfile:
        files = [os.environ.get("REGISTRY_AUTH_FILE"), f"{os.environ.get('XDG_RUNTIME_DIR', '')}/containers/auth.json"]
        file = next((Path(name) for name in files if name and Path(name).is_file()), home / "config.json")
    else:
        file = home / "config.json"
        for entry in home.iterdir() if home.is_dir() else ():
            if entry.name != "config.json":
                (folder / entry.name).symlink_to(entry)
    try:
        config = parse_json_object(read_document(file)) if file.is_file() else {}
    except (OSError, ParseError):
        return {}
    return config if all(isinstance(config.get(name) or {}, dict) for name in ("auths", "credHelpers")) else {}
