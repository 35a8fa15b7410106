"""Settings. The first source that sets a value decides: flags, `KFJOB_*`, the nearest `kfjob.toml` upward, the user's file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kfjob.base.capabilities import CAPABILITIES, TARGETS, find_name
from kfjob.base.errors import Problem, SpecError
from kfjob.base.file_access import OTHER_OWNER, find_foreign_access
from kfjob.base.parsing import ParseError, parse_toml, read_document
from kfjob.base.text import find_similar
from kfjob.base.units import MIB
from kfjob.objects.names import MAX_LABEL, is_dns_label

FILE_NAME = "kfjob.toml"
MAX_SETTINGS_BYTES = MIB
"""Size of `kfjob.toml`, and of a `pyproject.toml` with settings."""
MAX_VALUE = 4096
"""Characters of a setting, as of a path on Linux."""
MAX_SHOWN = 80
"""Characters of a wrong name or value of a setting in an error."""
STOP_TIMEOUT = 300.0
"""Time that the pods of a stopped job have to end."""
_CONTROL = r"[\x00-\x1f\x7f-\x9f]"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings for every job. None: not set."""

    backend: str | None = None  # kubernetes | local
    context: str | None = None  # in the kubeconfig
    namespace: str | None = None
    state: Path
    archive: str | None = None  # s3://BUCKET/PREFIX, a copy of the archive; None: the archive is a folder alone
    local_python: Path | None = None  # Python, or virtual environment, of jobs on this machine; None: the first on PATH
    etcd_image: str | None = None  # for a job's own etcd
    aws_profile: str | None = None  # to push and pull images; None: as the AWS CLI selects it
    user: str | None = None  # who submits jobs, as their launches record it; None: USER@HOST
    strict: bool = False  # treat lint warnings as errors
    target: str | None = None  # pytorchjob | trainjob | auto: the kind of jobs whose spec names none
    job_kind: str = ""  # of the jobs that kfjob submits to a cluster, or `auto`; "": the spec or `target` decides
    image_check: bool = True  # before a job is created, check that its images exist for the nodes' processor
    ignore: frozenset[str] = frozenset()  # lint rules that a command turns off with `--ignore`

    @property
    def archive_folder(self) -> Path:
        """The folder on this machine with stopped jobs."""
        return self.state / "archive"

    @property
    def submitter(self) -> str:
        """The name that a launch records: the setting `user`, or this process's user and host."""
        return self.user or _identify_process()


_BOOLEANS = ("strict", "image_check")
_PATHS = ("state", "local_python")
"""Settings that are paths; in a file, a relative one is relative to the file's folder."""
_NAMES = tuple(field.name for field in fields(Settings) if field.name not in ("ignore", "job_kind"))


def _identify_process() -> str:
    from getpass import getuser

    try:
        user = getuser()
    except (OSError, KeyError):  # a container whose user id has no name
        user = str(os.getuid())
    return f"{user}@{os.uname().nodename}"


def load_settings(*, environ: Mapping[str, str], folder: Path, **flags: str | None) -> Settings:
    """Return the settings, merged from all sources.

    Raises:
        SpecError: a file cannot be read, or has an unknown name or an invalid value.
        UsageError: the archive is no address of S3.
    """
    values: dict[str, Any] = {}
    for source in (_read_flags(flags), _read_environment(environ), _read_project(folder), _read_file(_user_file(environ))):
        values = {**source, **values}
    _check_texts(values)
    backend = values.get("backend")
    if backend is not None and find_name(backend) is None:
        hint = f"use {' or '.join(f'`{name}`' for name in CAPABILITIES)}"
        raise SpecError([Problem(title=f"unknown backend `{str(backend)[:MAX_SHOWN]}`", hint=hint)])
    _check_target(values.get("target"))
    if values.get("archive"):
        from kfjob.backends.s3_archive import check_address

        values["archive"] = check_address(values["archive"])
    state = expand_path(values.pop("state", None) or _state_home(environ))
    booleans: dict[str, Any] = {name: _parse_boolean(name, values.pop(name)) for name in _BOOLEANS if name in values}
    python = values.pop("local_python", None)
    return Settings(state=state, local_python=expand_path(python) if python else None, **booleans, **values)


def _check_target(target: object) -> None:
    """Check that `target` is a kind of job or `auto`.

    Raises:
        SpecError: it is not.
    """
    if target is not None and target not in TARGETS:
        hint = f"use {' or '.join(f'`{name}`' for name in TARGETS)}"
        raise SpecError([Problem(title=f"unknown target `{str(target)[:MAX_SHOWN]}`", hint=hint)])


def load_current_settings(**flags: str | None) -> Settings:
    """Return the settings of this process, from its environment and working directory."""
    return load_settings(environ=os.environ, folder=Path.cwd(), **flags)


def _read_flags(flags: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in flags.items() if value is not None}


def _read_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[key] for name in _NAMES if environ.get(key := f"KFJOB_{name.upper()}")}


def _read_project(folder: Path) -> dict[str, Any]:
    """Return the settings of the nearest `kfjob.toml`, or `pyproject.toml` with `[tool.kfjob]`, in the folder or above it."""
    for directory in (folder, *folder.parents):
        if (file := directory / FILE_NAME).is_file():
            _check_owner(file)
            return _read_file(file)
        project = directory / "pyproject.toml"
        if _mentions_settings(project) and (values := _read_file(project, ("tool", "kfjob"))):
            _check_owner(project)
            return values
    return {}


def _mentions_settings(project: Path) -> bool:
    try:
        return project.is_file() and b"kfjob" in read_document(project)
    except (OSError, ParseError):  # another user's, or too large for a project
        return False


def _check_owner(file: Path) -> None:
    """Check that nobody else can change a file that was found and not named, as git does for its repositories.

    Raises:
        SpecError: the file belongs to another user, or others may write it.
    """
    if not (cause := find_foreign_access(file.stat())):
        return
    hint = f"check its content, then run `{'chown $USER' if cause == OTHER_OWNER else 'chmod go-w'} {file}`"
    raise SpecError([Problem(title="the settings file is not safe to use", file=str(file), detail=cause, hint=hint)])


def _read_file(file: Path, table: tuple[str, ...] = ()) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        values = parse_toml(read_document(file, max_bytes=MAX_SETTINGS_BYTES))
    except (OSError, ValueError) as err:
        raise SpecError([Problem(title="the settings file cannot be read", file=str(file), detail=str(err))]) from None
    for key in table:
        values = values.get(key, {})
        if not isinstance(values, dict):
            raise SpecError([Problem(title=f"`{'.'.join(table)}` must be a table", file=str(file))])
    for name, value in values.items():
        if name not in _NAMES:
            shown = " ".join(name[:MAX_SHOWN].split())
            similar = find_similar(shown, _NAMES)
            hint = f"did you mean `{similar}`?" if similar else f"the settings are {', '.join(_NAMES)}"
            raise SpecError([Problem(title=f"unknown setting `{shown}`", file=str(file), hint=hint)])
        if not isinstance(value, str) and not (name in _BOOLEANS and isinstance(value, bool)):
            raise SpecError([Problem(title=f"setting `{name}` must be text", file=str(file))])
    _check_texts(values, file=str(file))
    return values | {name: str(file.absolute().parent / _expand(values[name])) for name in _PATHS if values.get(name)}


def _check_texts(values: Mapping[str, object], file: str | None = None) -> None:
    """Check that the texts can be parts of paths and messages.

    Raises:
        SpecError: a text has control characters or is too long, or the namespace is no name of Kubernetes.
    """
    for name, value in values.items():
        if isinstance(value, str) and (len(value) > MAX_VALUE or re.search(_CONTROL, value)):
            detail = f"it is longer than {MAX_VALUE} characters, or has control characters"
            raise SpecError([Problem(title=f"setting `{name}` is not usable", file=file, detail=detail)])
    namespace = values.get("namespace")
    if isinstance(namespace, str) and namespace and not is_dns_label(namespace):
        title = f"`{namespace[:MAX_SHOWN]}` cannot be a namespace"
        hint = f"a namespace has small letters, digits and `-`, and at most {MAX_LABEL} characters"
        raise SpecError([Problem(title=title, file=file, hint=hint)])


def expand_path(path: str | Path) -> Path:
    """Return a path as an absolute one, with the home folder for `~`.

    Raises:
        SpecError: there is no such user.
    """
    return _expand(path).absolute()


def _expand(path: str | Path) -> Path:
    """Return a path with the home folder for `~`.

    Raises:
        SpecError: there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as err:
        raise SpecError([Problem(title=f"the home folder of `{path}` is unknown", detail=str(err))]) from None


def _parse_boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("", "0", "1", "false", "true", "no", "yes"):
        raise SpecError([Problem(title=f"setting `{name}` must be true or false, not `{str(value)[:MAX_SHOWN]}`")])
    return text in ("1", "true", "yes")


def _user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return _expand(base) / "kfjob" / FILE_NAME


def _state_home(environ: Mapping[str, str]) -> Path:
    return _expand(environ.get("XDG_STATE_HOME") or "~/.local/state") / "kfjob"
