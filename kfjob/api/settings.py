"""Settings, from where they are said: flags, then `KFJOB_*`, then the nearest `kfjob.toml` upward, then the user's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kfjob.errors import Problem, SpecError

FILE_NAME = "kfjob.toml"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for every job. None: not said anywhere."""

    backend: str | None = None  # kubernetes | local
    context: str | None = None  # of the kubeconfig
    namespace: str | None = None
    state: Path
    etcd_image: str | None = None  # of a job's own etcd
    aws_profile: str | None = None  # to push and pull images as; None: as the AWS CLI would
    strict: bool = False  # what lint warns of is an error
    image_check: bool = True  # before a job is created: is its image there, and for the nodes' processor?

    @property
    def archive(self) -> Path:
        """The folder of this machine with the jobs that were stopped."""
        return self.state / "archive"


def load_settings(*, environ: Mapping[str, str], folder: Path, **flags: str | None) -> Settings:
    """Merge all sources; the first that says something wins.

    Raises:
        SpecError: a file cannot be read, or a name in it is not known.
    """
    said: dict[str, Any] = {}
    for source in (_flags(flags), _environment(environ), _nearest(folder), _read_file(_user_file(environ))):
        said = {**source, **said}
    backend = said.get("backend")
    if backend not in (None, "kubernetes", "local"):
        raise SpecError([Problem(title=f"unknown backend `{backend}`", hint="`kubernetes` or `local`")])
    state = Path(said.pop("state", None) or _state_home(environ)).expanduser().absolute()
    truths: dict[str, Any] = {name: _truth(name, said.pop(name)) for name in _TRUTHS if name in said}
    return Settings(state=state, **truths, **said)


_TRUTHS = ("strict", "image_check")
_NAMES = tuple(field.name for field in fields(Settings))


def _flags(flags: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in flags.items() if value is not None}


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[key] for name in _NAMES if environ.get(key := f"KFJOB_{name.upper()}")}


def _nearest(folder: Path) -> dict[str, Any]:
    for place in (folder, *folder.parents):
        if (file := place / FILE_NAME).is_file():
            return _read_file(file)
        project = place / "pyproject.toml"
        if project.is_file() and "[tool.kfjob]" in project.read_text(encoding="utf-8"):
            return _read_file(project, ("tool", "kfjob"))
    return {}


def _read_file(file: Path, table: tuple[str, ...] = ()) -> dict[str, Any]:
    if not file.is_file():
        return {}
    import tomllib  # most have no such file

    try:
        said: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as err:
        raise SpecError([Problem(title="the settings cannot be read", file=str(file), detail=str(err))]) from None
    for name in table:
        said = said[name]
    for name, value in said.items():
        if name not in _NAMES:
            from difflib import get_close_matches

            close = get_close_matches(name, _NAMES, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(_NAMES)}"
            raise SpecError([Problem(title=f"unknown setting `{name}`", file=str(file), hint=hint)])
        if not isinstance(value, str) and not (name in _TRUTHS and isinstance(value, bool)):
            raise SpecError([Problem(title=f"setting `{name}` must be text", file=str(file))])
    return said


def _truth(name: str, said: str | bool) -> bool:  # noqa: FBT001 - what a file or a variable says
    if str(said).lower() not in ("", "0", "1", "false", "true", "no", "yes"):
        raise SpecError([Problem(title=f"setting `{name}` must be true or false, not `{said}`")])
    return str(said).lower() in ("1", "true", "yes")


def _user_file(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "kfjob" / FILE_NAME


def _state_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "kfjob"


def load_current_settings(**flags: str | None) -> Settings:
    """Settings for this process: its environment and its folder."""
    return load_settings(environ=os.environ, folder=Path.cwd(), **flags)
