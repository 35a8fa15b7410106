"""Find the base images of a Dockerfile, and provide the engine with logins for those in ECR.

Engines pull base images themselves. An engine receives a login in a file that only this user can read, in memory where the
machine has such a folder, and that is deleted when the build ends. The user's own configuration stays in effect.
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
from itertools import takewhile
from pathlib import Path

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import UsageError
from kfjob.base.file_access import name_file
from kfjob.base.parsing import ParseError, parse_json_object, read_document
from kfjob.image.build.dockerfile import list_instructions, split_words
from kfjob.image.build.engines import Engine
from kfjob.image.references import ImageRef, parse_reference
from kfjob.image.registry.secrets import Login

_ARG = re.compile(r"^\s*ARG\s", re.IGNORECASE)
_FROM = re.compile(r"^\s*FROM\s+(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"^\s*COPY\s+.*?--from=(\S+)", re.IGNORECASE)
_VARIABLE = re.compile(r"\$(?:(\w++)|\{(\w++)(?::-([^}]*+))?(\})?)")
"""A variable, also without its closing brace, so that every text is read once."""
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp creates a folder in it


def find_base_images(dockerfile: str, build_args: Mapping[str, str]) -> list[str]:
    """Return the images that a build needs, with build arguments substituted, without stages and `scratch`.

    They stand after FROM, in `COPY --from` and in `RUN --mount=…,from=`.
    """
    values, stages, images = dict[str, str](), {"scratch"}, list[str]()
    for line in list_instructions(dockerfile):
        if not (stage := _FROM.match(line)):
            values |= _parse_args(line, values, build_args)
        for text in [stage[1]] if stage else _find_sources(line):
            name = _substitute(text, values)
            if name and name.lower() not in stages and not name.isdecimal() and name not in images:
                images.append(name)
        if stage and stage[2]:
            stages.add(stage[2].lower())
    return images


_PLATFORM_ARG = re.compile(r"(?:TARGET|BUILD)(?:PLATFORM|OS|ARCH|VARIANT)")
"""Arguments that a builder sets itself."""


def check_bases(dockerfile: str, build_args: Mapping[str, str]) -> None:
    """Check that each FROM names an image after the substitution.

    Raises:
        UsageError: a build argument in a FROM has no value, so that the name or the tag is empty.
    """
    values = dict[str, str]()
    for line in list_instructions(dockerfile):
        if not (stage := _FROM.match(line)):
            values |= _parse_args(line, values, build_args)
            continue
        names = [name for match in _VARIABLE.finditer(stage[1]) if not values.get(name := match[1] or match[2])]
        image = _substitute(stage[1], values)
        if not names or (image and image[0] != ":" and image[-1] != ":") or any(map(_PLATFORM_ARG.fullmatch, names)):
            continue
        name = names[0]
        hint = "set it with `--base-image IMAGE`" if name == "BASE_IMAGE" else f"set it with `--build-arg {name}=VALUE`"
        if name not in values:
            hint = f"declare it before the first FROM: `ARG {name}`, or `ARG {name}=VALUE` with a default"
        title = f"`FROM {stage[1]}` names no image, because the build argument `{name}` has no value"
        raise UsageError(title, hint=hint)


def _find_sources(line: str) -> list[str]:
    """Return the images or stages from which an instruction copies or mounts."""
    if match := _COPY_FROM.match(line):
        return [match[1]]
    command, *words = line.split()
    flags = takewhile(lambda word: word.startswith("--"), words if command.upper() == "RUN" else ())
    options = (option for flag in flags if flag.startswith("--mount=") for option in flag.removeprefix("--mount=").split(","))
    return [source for name, _, source in (option.partition("=") for option in options) if name == "from" and source]


def find_final_base(dockerfile: str, build_args: Mapping[str, str], target: str | None = None) -> ImageRef | None:
    """Return the base image of the last stage, or of the stage `target`; None for `scratch` or an unknown base."""
    values, bases, base = dict[str, str](), dict[str, str](), ""
    for line in list_instructions(dockerfile):
        values |= _parse_args(line, values, build_args)
        if stage := _FROM.match(line):
            name = _substitute(stage[1], values)
            base = bases.get(name.lower(), name)
            bases[(stage[2] or "").lower()] = base
    if target:
        base = bases.get(target.lower(), "")
    try:
        return parse_reference(base) if base and base.lower() != "scratch" else None
    except UsageError:
        return None


def _parse_args(line: str, values: Mapping[str, str], build_args: Mapping[str, str]) -> dict[str, str]:
    """Return the values of an ARG instruction, which may declare several; empty for other lines.

    An ARG without a default in a stage gets the value from before the first FROM.
    """
    args = dict[str, str]()
    for word in split_words(line)[1:] if _ARG.match(line) else ():
        name, has_default, default = word.partition("=")
        known = {**values, **args}
        args[name] = build_args.get(name, _substitute(default, known) if has_default else known.get(name, ""))
    return args


def _substitute(text: str, values: Mapping[str, str]) -> str:
    def find_value(match: re.Match[str]) -> str:
        is_complete = match[1] or match[4]
        return values.get(match[1] or match[2]) or match[3] or "" if is_complete else match[0]

    return _VARIABLE.sub(find_value, text.strip("\"'"))


def select_ecr_images(images: list[str]) -> list[ImageRef]:
    """Return the images in private ECR registries, one for each registry; the public ECR needs no login."""
    refs: dict[str, ImageRef] = {}
    for image in images:
        with contextlib.suppress(UsageError):  # the engine reports the invalid name
            ref = parse_reference(image)
            if ref.ecr and not ref.ecr.public:
                refs.setdefault(ref.registry, ref)
    return list(refs.values())


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
