"""`${NAME}`, `${NAME:-default}` and `$NAME` in a text: which are replaced, by what, and which are left for the pod. Pure.

The replacing itself is done by the `envsubst` package. By itself it makes undefined names empty, reads the environment of this
process, and takes values for text in which there may be more names. So it sees only the references that have a value, and only
the values that were given.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from kfjob.errors import BackendError

# a `$` behind another one or behind a backslash is the shell's own; so is every other form, as ${A:1}, $(cmd), $1
REFERENCE = re.compile(
    r"(?<![\\$])\$(?:\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?P<dash>:?-(?P<default>[^}\n]*))?\}|(?P<bare>[A-Za-z_][A-Za-z0-9_]*))"
)

# torchrun's, for the training processes (torch 2.15, elastic/agent/server/local_elastic_agent.py `_start_workers`)
_TORCHRUN = """
    RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE MASTER_ADDR
    MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
    TORCHELASTIC_ERROR_FILE
"""
_SHELL = """
    HOSTNAME HOME PATH PWD OLDPWD SHELL SHLVL UID EUID PPID RANDOM SECONDS LINENO IFS OPTARG OPTIND TMPDIR LANG TERM
    PYTHONPATH LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT
"""
RUN_TIME = frozenset((_TORCHRUN + _SHELL).split())
"""Names that mean something inside a pod; they are left alone unless somebody gives them a value."""
_RUN_TIME_PREFIXES = ("PET_", "BASH_")


class Fate(Enum):
    """What becomes of a reference."""

    REPLACED = "replaced"
    LEFT = "left"  # for the pod
    MISSING = "missing"  # nobody gave the name
    EMPTY = "empty"  # somebody gave it, without a value
    NESTED = "nested"  # its default holds another reference in braces, which the package would cut in two


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The names that have a value, and those that are the pod's whatever is given."""

    values: Mapping[str, str]
    keep: Collection[str] = ()

    def fate(self, reference: re.Match[str]) -> Fate:
        """What becomes of one match of `REFERENCE`."""
        name = reference["braced"] or reference["bare"]
        if name in self.keep:
            return Fate.LEFT
        if reference["default"] is not None and "${" in reference["default"]:
            return Fate.NESTED
        if self.values.get(name):
            return Fate.REPLACED
        if reference["bare"] or is_run_time(name):
            return Fate.LEFT
        if name in self.values:
            return Fate.REPLACED if reference["dash"] and reference["dash"].startswith(":") else Fate.EMPTY
        return Fate.REPLACED if reference["dash"] else Fate.MISSING

    def replace(self, text: str) -> str:
        """The text with every reference replaced whose fate it is; all others stay as they stand."""
        return _show(self._envsubst("".join(self._parts(text)))) if "$" in text else text

    @cached_property
    def _envsubst(self) -> Callable[[str], str]:
        return _envsubst({name: _hide(value) for name, value in self.values.items() if name not in self.keep})

    def _parts(self, text: str) -> Iterator[str]:
        """The text as the package may see it."""
        at = 0
        for found in REFERENCE.finditer(text):
            yield _hide(text[at : found.start()])
            at = found.end()
            if self.fate(found) is not Fate.REPLACED:
                yield _hide(found[0])
            elif found["bare"]:
                yield found[0]
            elif self.values.get(found["braced"]):
                yield f"${{{found['braced']}}}"
            elif found["default"]:  # an empty one is nothing, and the package would not take it for a default
                yield f"${{{found['braced']}:-{''.join(self._parts(found['default']))}}}"
        yield _hide(text[at:])


def is_run_time(name: str) -> bool:
    """Whether a name means something inside a pod."""
    return name in RUN_TIME or name.startswith(_RUN_TIME_PREFIXES)


_MARK = "\ue000"
_HIDDEN = {"$": f"{_MARK}d", "}": f"{_MARK}b", "\\": f"{_MARK}s", _MARK: f"{_MARK}m"}  # what has a meaning to the package
_SHOWN = {hidden: char for char, hidden in _HIDDEN.items()}


def _hide(text: str) -> str:
    return re.sub(r"[$}\\\ue000]", lambda found: _HIDDEN[found[0]], text)


def _show(text: str) -> str:
    return re.sub(f"{_MARK}.", lambda found: _SHOWN[found[0]], text)


def _envsubst(values: Mapping[str, str]) -> Callable[[str], str]:
    """The package's function over `values`: a copy of its module, which takes them for the environment."""
    found = importlib.util.find_spec("envsubst")
    if found is None or found.loader is None:
        raise BackendError("the package `envsubst` is not installed", hint="`pip install envsubst`")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    copy: Any = module
    copy.os, copy.sys = SimpleNamespace(environ=values), SimpleNamespace(argv=())
    function: Callable[[str], str] = copy.envsubst
    return function
