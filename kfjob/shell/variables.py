"""References to variables in a text: `${NAME}`, `${NAME:-default}` and `$NAME`. Pure.

The `envsubst` package replaces the references. On its own it replaces undefined names by nothing, reads the environment of this
process, and looks for references inside values. So this module shows it only the references that have a value, and only the
values that the user provided.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property
from types import MappingProxyType, SimpleNamespace
from typing import Any

from msgspec import Struct

from kfjob.base.errors import BackendError
from kfjob.base.shells import NAME, is_set_by_shell

_BRACED = rf"\{{(?P<braced>{NAME}+)(?P<dash>:?-(?P<default>[^}}\n]*+))?(?P<end>\}})?"
_BARE = rf"(?P<bare>{NAME}+)"
_REFERENCE = rf"(?<![\\$])\$(?:{_BRACED}|{_BARE})"
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
_IMAGE_AND_KUBELET = """
    TMPDIR LANG PYTHONPATH LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES
"""
_OPERATOR = "PYTHONUNBUFFERED"
"""The operator sets it in every container (v1.9.3, pytorch/envvar.go)."""
_RUN_TIME = frozenset((_TORCHRUN + _IMAGE_AND_KUBELET + _OPERATOR).split())
_RUN_TIME_PREFIXES = ("PET_", "KUBERNETES_SERVICE_", "KUBERNETES_PORT")
RANK_NAMES = frozenset(("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"))
"""Names that the operator sets in the containers of a job with a Master, and that a shell has in no other pod."""


class Reader(Enum):
    """What reads a text of a template."""

    KUBERNETES = "Kubernetes"  # which replaces no reference
    PROGRAM = "a program in the pod"
    SHELL = "a shell in the pod"


class Resolution(Enum):
    """What happens to a reference."""

    REPLACED = "replaced"
    FOR_THE_POD = "for the pod"  # left as it is
    MISSING = "missing"  # the name has no value
    NESTED = "nested"  # the default contains another reference in braces, which the package would split


UNRESOLVED_REASONS: Mapping[Resolution, str] = MappingProxyType(
    {
        Resolution.MISSING: "has no value",
        Resolution.NESTED: "has a default that contains another reference, which cannot be replaced",
    }
)
"""The rest of a message about a reference that cannot be replaced."""
LEAVES_NOTHING = "the value is empty, and so is the whole text"
"""The rest of a note about a text without any other words."""


def write_value_hint(name: str, *, may_be_empty: bool) -> str:
    """Return the hint for a name without a value."""
    empty = f" (`--var {name}=` for an empty one)" if may_be_empty else ""
    return f"set it in an env file, with `--var {name}=…`{empty}, or export it and use `--env`"


class Definition(Struct, frozen=True, kw_only=True):
    """What the pod itself defines for a name; the value is None if it is not known here."""

    value: str | None


class Replacement(Struct, frozen=True):
    """The text that takes the place of a reference."""

    text: str
    is_default: bool
    """Whether the text is the reference's own default, which can contain more references."""


def resolve(reference: re.Match[str], values: Mapping[str, str]) -> Replacement | None:
    """Return what takes the place of a match of `find_references`; None if its name has no value and it has no default.

    `${A:-x}` takes its default also for an empty value, and `${A-x}` does not.
    """
    value, dash = values.get(get_name(reference)), reference["dash"] or ""
    if value is not None and (value or not dash.startswith(":")):
        return Replacement(value, is_default=False)
    return Replacement(reference["default"] or "", is_default=True) if dash else None


class Variables(Struct, frozen=True, kw_only=True, dict=True):
    """The values of variables, the names that are always left for the pod, and the only names to replace if they are given."""

    values: Mapping[str, str]
    keep: Collection[str] = ()
    only: Collection[str] | None = None
    exported: Collection[str] = ()
    """Names of values that the user exported and did not give by name, which have another value in a pod."""
    unset: Collection[str] = ()
    """Those of `RANK_NAMES` that nothing sets in the pods."""

    def classify(
        self, reference: re.Match[str], *, reader: Reader = Reader.SHELL, definition: Definition | None = None
    ) -> Resolution:
        """Return what happens to one match of `find_references`.

        `reader` is what reads the text in the pod. Only a program there can replace a name without braces, and only a shell
        uses a default. `definition` is that of the pod, if it defines the name.
        """
        name = get_name(reference)
        if name in self.keep:
            return Resolution.FOR_THE_POD
        if self.only is not None:
            if name not in self.only:
                return Resolution.MISSING if reader is Reader.KUBERNETES else Resolution.FOR_THE_POD
        elif self._is_left(reference, reader, definition):
            return Resolution.FOR_THE_POD
        if reference["default"] is not None and "${" in reference["default"]:
            return Resolution.NESTED
        return Resolution.REPLACED if resolve(reference, self.values) else Resolution.MISSING

    def _is_left(self, reference: re.Match[str], reader: Reader, definition: Definition | None) -> bool:
        """Return whether a reference stays, because the pod replaces it."""
        name = get_name(reference)
        if name in self.exported and name not in self.unset and reader is not Reader.KUBERNETES:
            return True
        if name in self.values:
            return reader is Reader.SHELL and definition is not None and definition.value != self._expand(reference)
        if is_run_time(name):
            return True
        if reader is Reader.KUBERNETES:
            return False
        return bool(reference["bare"]) or (reader is Reader.SHELL if reference["dash"] else definition is not None)

    def _expand(self, reference: re.Match[str]) -> str | None:
        """Return the text that takes the place of a reference, with the references of its default replaced."""
        replacement = resolve(reference, self.values)
        if replacement is None:
            return None
        return self.replace(replacement.text) if replacement.is_default else replacement.text

    def replace(
        self,
        text: str,
        *,
        reader: Reader = Reader.SHELL,
        resolutions: Iterable[Resolution] | None = None,
        unescape: bool = False,
    ) -> str:
        """Return the text with every reference replaced that can be; the others stay as they are.

        `resolutions` says what happens to each reference of the text, instead of `classify`. With `unescape`, `$$NAME`, `$${`
        and `$$(` become a text with one `$`.
        """
        if "$" not in text:
            return text
        references = list(find_references(text))
        if resolutions is None:
            resolutions = [self.classify(reference, reader=reader) for reference in references]
        parts = self._mask_parts(text, zip(references, resolutions, strict=True), unescape=unescape)
        return _unmask(self._envsubst("".join(parts)))

    @cached_property
    def _envsubst(self) -> Callable[[str], str]:
        return _load_envsubst({name: _mask(value) for name, value in self.values.items() if name not in self.keep})

    def _mask_parts(
        self, text: str, references: Iterable[tuple[re.Match[str], Resolution]], *, unescape: bool = False
    ) -> Iterator[str]:
        """Yield the parts of the text, masked except for the references that the package is to replace."""
        offset = 0
        for reference, resolution in references:
            yield _mask(text[offset : reference.start()], unescape=unescape)
            offset = reference.end()
            replacement = resolve(reference, self.values)
            if resolution is not Resolution.REPLACED or replacement is None:
                yield _mask(reference[0]) + (_NAME_END if reference["bare"] else "")
            elif not replacement.is_default:  # the package takes no braces inside of a default
                yield reference[0] if reference["bare"] else f"${{{get_name(reference)}}}"
            elif replacement.text:  # the package does not take an empty text for a default
                inner = [(match, self.classify(match)) for match in find_references(replacement.text)]
                yield f"${{{get_name(reference)}:-{''.join(self._mask_parts(replacement.text, inner))}}}"
        yield _mask(text[offset:], unescape=unescape)


def get_name(reference: re.Match[str]) -> str:
    """Return the name of a match of `find_references`."""
    return str(reference["braced"] or reference["bare"])


def find_references(text: str) -> Iterator[re.Match[str]]:
    """Yield the references of a text, with the groups `braced`, `dash` and `default`, or `bare`.

    A reference whose default ends inside parentheses or braces, such as `${IP:-$(awk '{print $1}' hosts)}`, is only a shell's.
    """
    for reference in re.finditer(_REFERENCE, text):
        if reference["bare"] or reference["end"]:
            if not _is_cut(reference["default"] or ""):
                yield reference
        else:  # no brace ends the line, so only names without braces can follow
            yield from _BARE_REFERENCE.finditer(text, reference.start() + 1, reference.end())


_SHELL_FORM = rf"(?<![\\$])\$\{{(?P<name>{NAME}+)(?!\}})(?>(?:[^{{}}\n]|\{{[^{{}}\n]*+\}})*)\}}"


def find_shell_forms(text: str) -> Iterator[re.Match[str]]:
    """Yield the texts such as `${A:0:1}` and `${A:-x{}}`, which name a variable and are no references; each has the `name`."""
    starts = {reference.start() for reference in find_references(text)}
    return (match for match in re.finditer(_SHELL_FORM, text) if match.start() not in starts)


def find_names(text: str) -> set[str]:
    """Return the names of all references and shell forms of a text."""
    return {*map(get_name, find_references(text)), *(match["name"] for match in find_shell_forms(text))}


def _is_cut(default: str) -> bool:
    """Return whether the brace that ended a default belongs to the default itself."""
    return default.count("(") > default.count(")") or "{" in default.replace("${", "")


def is_run_time(name: str) -> bool:
    """Return whether a name has a value inside a pod. Such a name is replaced only if the user provides a value."""
    return name in _RUN_TIME or name.startswith(_RUN_TIME_PREFIXES) or is_set_by_shell(name)


_MARK = "\ue000"
_MASKS = {"$": f"{_MARK}d", "}": f"{_MARK}b", "\\": f"{_MARK}s", _MARK: f"{_MARK}m"}
"""Texts that replace the characters with a meaning to the package."""
_CHARACTERS = {mask: character for character, mask in _MASKS.items()}
_NAME_END = f"{_MARK}e"
_JOINED = rf"{_MARK}d({NAME}+){_NAME_END}(?=[A-Za-z0-9_])"
"""A name without braces that stays, and the value of another reference that would continue it."""


_ESCAPED = r"\$\$(?=[A-Za-z_{(])"


def _mask(text: str, *, unescape: bool = False) -> str:
    text = re.sub(_ESCAPED, "$", text) if unescape else text
    return re.sub(r"[$}\\\ue000]", lambda match: _MASKS[match[0]], text)


def _unmask(text: str) -> str:
    text = re.sub(_JOINED, rf"{_MARK}d{{\1{_MARK}b", text).replace(_NAME_END, "")
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
