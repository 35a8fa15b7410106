"""The images that a Dockerfile begins with, and a login for those of them that are in ECR.

An engine pulls them by itself. It is lent a login as a file that only this user can read, in memory where the machine has
such a folder, and that is gone when the build ends. What the user's own configuration says stays in force beside it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kfjob.errors import UsageError
from kfjob.image.build.engines import Engine
from kfjob.image.references import ImageRef, parse_reference
from kfjob.image.registry.secrets import Login

_ARG = re.compile(r"^\s*ARG\s+(\w+)(?:=(\S*))?\s*$", re.IGNORECASE)
_FROM = re.compile(r"^\s*FROM\s+(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"^\s*COPY\s+.*--from=(\S+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of a name of its own is made in it


def find_base_images(dockerfile: str, build_args: Mapping[str, str]) -> list[str]:
    """The names after FROM and `COPY --from`, with build arguments filled in; not the stages, nor `scratch`."""
    values, stages, found = dict[str, str](), {"scratch"}, list[str]()
    for line in dockerfile.splitlines():
        if argument := _ARG.match(line):
            values[argument[1]] = build_args.get(argument[1], (argument[2] or "").strip("\"'"))
        named = _FROM.match(line) or _COPY_FROM.match(line)
        if named:
            name = _VARIABLE.sub(lambda m: values.get(m[1] or m[2]) or m[3] or "", named[1].strip("\"'"))
            if name and name.lower() not in stages and not name.isdecimal() and name not in found:
                found.append(name)
        if (stage := _FROM.match(line)) and stage[2]:
            stages.add(stage[2].lower())
    return found


def find_final_base(dockerfile: str, build_args: Mapping[str, str], target: str | None = None) -> ImageRef | None:
    """The image that the built one stands on: of the last stage, or of `target`; None: `scratch`, or nobody can tell."""
    values, stages, last = dict[str, str](), dict[str, str](), ""
    for line in dockerfile.splitlines():
        if argument := _ARG.match(line):
            values[argument[1]] = build_args.get(argument[1], (argument[2] or "").strip("\"'"))
        if stage := _FROM.match(line):
            name = _VARIABLE.sub(lambda m: values.get(m[1] or m[2]) or m[3] or "", stage[1].strip("\"'"))
            last = stages.get(name.lower(), name)
            stages[(stage[2] or "").lower()] = last
    base = stages.get(target.lower(), "") if target else last
    try:
        return parse_reference(base) if base and base.lower() != "scratch" else None
    except UsageError:
        return None


def select_ecr_images(images: list[str]) -> list[ImageRef]:
    """Those that ECR has, one for each registry; the public registry gives to everybody."""
    refs: dict[str, ImageRef] = {}
    for image in images:
        with contextlib.suppress(UsageError):  # the engine will say what is wrong with it
            ref = parse_reference(image)
            if ref.ecr and not ref.ecr.public:
                refs.setdefault(ref.registry, ref)
    return list(refs.values())


@contextlib.contextmanager
def lend_logins(
    logins: Mapping[str, Callable[[], Login | None]], engine: Engine
) -> Iterator[tuple[dict[str, str], Path | None]]:
    """A login for each of these registries, for as long as the block lasts: variables for the engine, or a file for it."""
    if not logins:
        yield {}, None
        return
    folder = Path(tempfile.mkdtemp(prefix="kfjob-", dir=_IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None))
    try:  # mkdtemp's folder is of mode 700
        file = folder / "config.json"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(_with_logins(_own_config(folder, engine), logins), stream)
        yield ({}, file) if engine.takes_authfile else ({"DOCKER_CONFIG": str(folder)}, None)
    finally:
        shutil.rmtree(folder)


def _with_logins(config: dict[str, Any], logins: Mapping[str, Callable[[], Login | None]]) -> dict[str, Any]:
    auths, helpers = dict(config.get("auths") or {}), dict(config.get("credHelpers") or {})
    for registry, source in logins.items():
        if login := source():
            text = f"{login.user}:{login.password.reveal()}"
            auths[registry] = {"auth": base64.b64encode(text.encode()).decode()}
            helpers.pop(registry, None)
    return config | {"auths": auths, "credHelpers": helpers}


def _own_config(folder: Path, engine: Engine) -> dict[str, Any]:
    """What the user has configured, with the rest of docker's folder (contexts, plugins) linked beside it."""
    home = Path(os.environ.get("DOCKER_CONFIG") or Path("~/.docker").expanduser())
    if engine.takes_authfile:
        places = [os.environ.get("REGISTRY_AUTH_FILE"), f"{os.environ.get('XDG_RUNTIME_DIR', '')}/containers/auth.json"]
        file = next((Path(place) for place in places if place and Path(place).is_file()), home / "config.json")
    else:
        file = home / "config.json"
        for other in home.iterdir() if home.is_dir() else ():
            if other.name != "config.json":
                (folder / other.name).symlink_to(other)
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
