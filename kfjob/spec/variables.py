"""References to variables in a text: `${NAME}`, `${NAME:-default}` and `$NAME`. Pure.

The `envsubst` package replaces the references. On its own it replaces undefined names by nothing, reads the environment of this
process, and looks for references inside values. So this module shows it only the references that have a value, and only the
values that the user provided.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any

from kfjob.errors import BackendError

_BRACED = r"\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*+)(?P<dash>:?-(?P<default>[^}\n]*+))?+(?P<end>\})?+"
_BARE = r"(?P<bare>[A-Za-z_][A-Za-z0-9_]*+)"
_REFERENCE = re.compile(rf"(?<![\\$])\$(?:{_BRACED}|{_BARE})")
"""Also a reference without its closing brace, which has no `end`, so that every text is read once.

A `$` after another `$` or a backslash belongs to the shell, and so do other forms, such as `${A:1}`, `$(cmd)` or `$1`.
"""
_BARE_REFERENCE = re.compile(rf"(?<![\\$])\$(?:(?!\{{){_BRACED}|{_BARE})")
"""A name without braces; the pattern has the groups of `_REFERENCE`."""

# torchrun sets these for the training processes (torch 2.15, elastic/agent/server/local_elastic_agent.py `_start_workers`)
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
"""Names that have a value inside a pod. They are replaced only if the user provides a value."""
_RUN_TIME_PREFIXES = ("PET_", "BASH_")


class Resolution(Enum):
    """What happens to a reference."""

    REPLACED = "replaced"
    FOR_THE_POD = "for the pod"  # left as it is
    MISSING = "missing"  # the name has no value
    EMPTY = "empty"  # the name has an empty value, and the reference no default for that
    NESTED = "nested"  # the default contains another reference in braces, which the package would split


UNRESOLVED_REASONS: Mapping[Resolution, str] = MappingProxyType(
    {
        Resolution.MISSING: "has no value",
        Resolution.EMPTY: "has an empty value",
        Resolution.NESTED: "has a default that contains another reference, which cannot be replaced",
    }
)
"""The rest of a message about a reference that cannot be replaced."""


@dataclass(frozen=True, kw_only=True)
class Variables:
    """The values of variables, and the names that are always left for the pod."""

    values: Mapping[str, str]
    keep: Collection[str] = ()

    def classify(self, reference: re.Match[str], *, in_program: bool = True) -> Resolution:
        """Return what happens to one match of `find_references`.

        `in_program` means that a program in the pod reads the text. Only a program can replace a name without braces.
        """
        name = reference["braced"] or reference["bare"]
        if name in self.keep:
            return Resolution.FOR_THE_POD
        if reference["default"] is not None and "${" in reference["default"]:
            return Resolution.NESTED
        if self.values.get(name):
            return Resolution.REPLACED
        if is_run_time(name) or (reference["bare"] and in_program and name not in self.values):
            return Resolution.FOR_THE_POD
        if name in self.values:
            return Resolution.REPLACED if reference["dash"] and reference["dash"].startswith(":") else Resolution.EMPTY
        return Resolution.REPLACED if reference["dash"] else Resolution.MISSING

    def replace(self, text: str) -> str:
        """Return the text with every reference replaced that can be; the others stay as they are."""
        return _unmask(self._envsubst("".join(self._mask_parts(text)))) if "$" in text else text

    @cached_property
    def _envsubst(self) -> Callable[[str], str]:
        return _load_envsubst({name: _mask(value) for name, value in self.values.items() if name not in self.keep})

    def _mask_parts(self, text: str) -> Iterator[str]:
        """Yield the parts of the text, masked except for the references that the package is to replace."""
        offset = 0
        for reference in find_references(text):
            yield _mask(text[offset : reference.start()])
            offset = reference.end()
            if self.classify(reference) is not Resolution.REPLACED:
                yield _mask(reference[0])
            elif reference["bare"]:
                yield reference[0]
            elif self.values.get(reference["braced"]):
                yield f"${{{reference['braced']}}}"
            elif reference["default"]:  # the package does not take an empty text for a default
                yield f"${{{reference['braced']}:-{''.join(self._mask_parts(reference['default']))}}}"
        yield _mask(text[offset:])


def find_references(text: str) -> Iterator[re.Match[str]]:
    """Yield the references of a text, with the groups `braced`, `dash` and `default`, or `bare`."""
    for reference in _REFERENCE.finditer(text):
        if reference["bare"] or reference["end"]:
            yield reference
        else:  # no brace ends the line, so only names without braces can follow
            yield from _BARE_REFERENCE.finditer(text, reference.start() + 1, reference.end())


def is_reference(text: str) -> bool:
    """Return whether the whole text is one reference."""
    reference = _REFERENCE.fullmatch(text)
    return reference is not None and bool(reference["bare"] or reference["end"])


def is_run_time(name: str) -> bool:
    """Return whether a name has a value inside a pod."""
    return name in RUN_TIME or name.startswith(_RUN_TIME_PREFIXES)


_MARK = "\ue000"
_MASKS = {"$": f"{_MARK}d", "}": f"{_MARK}b", "\\": f"{_MARK}s", _MARK: f"{_MARK}m"}
"""Texts that replace the characters with a meaning to the package."""
_CHARACTERS = {mask: character for character, mask in _MASKS.items()}


def _mask(text: str) -> str:
    return re.sub(r"[$}\\\ue000]", lambda match: _MASKS[match[0]], text)


def _unmask(text: str) -> str:
    return re.sub(f"{_MARK}.", lambda match: _CHARACTERS[match[0]], text)


def _load_envsubst(values: Mapping[str, str]) -> Callable[[str], str]:
    """Return the package's function over `values`: a copy of its module that has them as its environment."""
    spec = importlib.util.find_spec("envsubst")
    if spec is None or spec.loader is None:
        raise BackendError("the package `envsubst` is not installed", hint="run `pip install envsubst`")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    copy: Any = module
    copy.os, copy.sys = SimpleNamespace(environ=values), SimpleNamespace(argv=())
    function: Callable[[str], str] = copy.envsubst
    return function
