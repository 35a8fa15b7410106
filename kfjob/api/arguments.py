"""Check the arguments of the Python API by their annotations, so that a wrong one is an error in kfjob's own words."""

from __future__ import annotations

import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from kfjob.base.capabilities import CAPABILITIES
from kfjob.base.errors import UsageError
from kfjob.base.text import join_names
from kfjob.redaction import cut_text

P = ParamSpec("P")
T = TypeVar("T")
MAX_NAME = 80
"""Characters of a wrong argument that an error quotes."""


def _is_instance(value: object, name: str) -> bool:
    """Return whether the value's class or one of its bases has this name; the class itself need not be imported."""
    return any(base.__name__ == name for base in type(value).__mro__)


def _is_number(value: Any, kind: Any) -> bool:
    """Return whether the value is a number of this kind from 0 on; True and False are not numbers."""
    return not isinstance(value, bool) and isinstance(value, kind) and bool(operator.ge(value, 0))


def _is_list_of_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


Check = tuple[str, Callable[[object], bool]]
"""What a value is, and whether a value is that."""
_CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "None": ("None", lambda value: value is None),
        "str": ("text", lambda value: isinstance(value, str)),
        "list[str]": ("a list of texts", _is_list_of_texts),
        "Path": ("a path", lambda value: isinstance(value, os.PathLike)),
        "bool": ("True or False", lambda value: isinstance(value, bool)),
        "int": ("a whole number from 0 on", lambda value: _is_number(value, Integral)),
        "float": ("a number of seconds from 0 on", lambda value: _is_number(value, Real)),
        "Notify": ("a function that takes a text", callable),
        "JsonMapping": ("a mapping", lambda value: isinstance(value, Mapping)),
        "JobSpec": ("a `JobSpec`", lambda value: _is_instance(value, "JobSpec")),
        "ImageSpec": ("an `ImageSpec`", lambda value: _is_instance(value, "ImageSpec")),
        "Settings": ("`Settings`", lambda value: _is_instance(value, "Settings")),
        "KubeflowOrgV1PyTorchJob": (
            "a `KubeflowOrgV1PyTorchJob`",
            lambda value: _is_instance(value, "KubeflowOrgV1PyTorchJob"),
        ),
    }
)
"""The check of each annotation."""
_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "timeout": "write seconds as a number, for example `timeout=600`",
        "interval": "write seconds as a number, for example `interval=2`",
        "tail": "write a number of lines, for example `tail=100`",
        "avoid_nodes": 'write a list of names of nodes, such as `["node-7"]`',
        "command": 'write the words of a command, such as `["nvidia-smi", "-L"]`',
        "pod": "write the name of a pod; `run.snapshot().pods` has them",
        "include": 'write a regular expression, for example `include="loss"`',
        "job": "write the name of a job; `kfjob.list_jobs()` has them",
        "jobs": 'write a list of jobs, such as `["train@1", "train@2"]`',
        "file": "write the path of a file",
        "folders": "write a list of paths",
        "spec": "build one with `JobSpec(name=…, command=…)`, or write the path of a spec file",
        "settings": "leave it out, or pass `kfjob.Settings(…)`",
        "notify": "pass for example `print`",
        "backend": f"write {' or '.join(f'`{name}`' for name in CAPABILITIES)}",
        "code": "write the path of a folder",
    }
)
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType({"backend": tuple(CAPABILITIES)})


def check_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with a check of its arguments. The annotations are texts of `_CHECKS`, joined by `|`.

    Calls raise `UsageError` for an argument of another type.
    """
    parameters = inspect.signature(function).parameters
    checks = {
        name: [_CHECKS[kind] for kind in str(parameter.annotation).split(" | ")]
        for name, parameter in parameters.items()
        if name != "self"
    }

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> T:
        given = dict(zip(parameters, args, strict=False)) | options
        for name, value in given.items():
            if name in checks:
                _check_argument(name, value, checks[name])
        return function(*args, **options)

    return checked


def _check_argument(name: str, value: Any, checks: list[Check]) -> None:
    """Check one argument.

    Raises:
        UsageError: the value passes none of the checks.
    """
    is_choice = value is None or name not in _CHOICES or value in _CHOICES[name]
    if any(check(value) for _, check in checks) and is_choice:
        return
    nouns = [noun for noun, _ in checks if noun != "None"] if is_choice else [f"`{choice}`" for choice in _CHOICES[name]]
    text = cut_text(repr(value), MAX_NAME) if isinstance(value, str | Real) else type(value).__name__
    expected = " or ".join(nouns) if len(nouns) < 3 else f"{join_names(nouns[:-1])} or {nouns[-1]}"  # noqa: PLR2004
    raise UsageError(f"`{name}` is not {expected}: `{text}`", hint=_HINTS.get(name, f"write {expected}"))
