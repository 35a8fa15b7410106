"""The few parts of the `kubernetes` package that are used, imported without the rest of it.

Up to version 35 any import of it runs `kubernetes/client/__init__.py`, which imports all 700 generated models: 0.8 s of CPU
before every command that asks a cluster, more than all else together. So the parts are loaded under stand-ins for the two
packages, which are taken out of `sys.modules` again: who imports `kubernetes` later gets the whole of it. Version 37 loads its
models when they are used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct

_LAZY_SINCE = 36


class Parts(Struct, frozen=True):
    """What `connect` works with."""

    Configuration: Any
    RESTClientObject: Any
    config: Any  # the module kubernetes.config


@cache
def parts() -> Parts:
    """Import them, once."""
    if "kubernetes" in sys.modules or _version() >= _LAZY_SINCE:
        return _import()
    with _stand_ins():
        return _import()


def _import() -> Parts:
    from kubernetes import config
    from kubernetes.client.configuration import Configuration
    from kubernetes.client.rest import RESTClientObject

    return Parts(Configuration=Configuration, RESTClientObject=RESTClientObject, config=config)


def _version() -> int:
    """The major version, read and not asked for: `importlib.metadata` costs 10 ms."""
    for folder in _folders():
        with (folder / "client" / "__init__.py").open(encoding="utf-8") as file:
            for line in file:
                if line.startswith("__version__"):
                    return int(line.partition("=")[2].strip(" \"'\n").partition(".")[0])
    return _LAZY_SINCE


def _folders() -> list[Path]:
    spec = find_spec("kubernetes")
    assert spec is not None  # it is a dependency  # noqa: S101
    return [Path(folder) for folder in spec.submodule_search_locations or ()]


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Packages that have the submodules of `kubernetes` and `kubernetes.client`, and run none of their code."""
    later = [name for name in _LATER if name not in sys.modules]
    package, client = ModuleType("kubernetes"), ModuleType("kubernetes.client")
    package.__path__ = [str(folder) for folder in _folders()]
    client.__path__ = [f"{folder}/client" for folder in package.__path__]
    sys.modules |= {"kubernetes": package, "kubernetes.client": client} | {name: _Later(name) for name in later}
    if "multiprocessing" in later:  # all that is asked of it, for a number that `connect` replaces
        sys.modules["multiprocessing"].cpu_count = os.cpu_count  # type: ignore[attr-defined]
    try:
        from kubernetes.client.configuration import Configuration

        client.Configuration = Configuration  # type: ignore[attr-defined]
        client.ApiClient = _api_client  # type: ignore[attr-defined]
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
            del sys.modules[name]
        for name in later:
            del sys.modules[name]


_LATER = (
    *("oauthlib", "oauthlib.oauth2", "requests_oauthlib"),  # to renew an OIDC token
    *("requests", "requests.utils"),  # behind a proxy
    "importlib.metadata",  # urllib3, for HTTP/2
    "certifi",  # where the kubeconfig names no authority
    "multiprocessing",
)
"""What is needed seldom or never: 50 ms of imports."""


class _Later(ModuleType):
    """Stands for a package until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "oauthlib":
            return import_module(f"oauthlib.{name}")
        return _Use(self.__name__, name)  # imported by `from … import …`, long before it is called


class _Use(Struct, frozen=True):
    """One name of such a module, which is called."""

    module: str
    name: str

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return getattr(import_module(self.module), self.name)(*arguments, **named)


def _api_client(*arguments: Any, **named: Any) -> Any:
    """`kubernetes.config` makes one to renew an OIDC token, and then the whole package is needed."""
    from kubernetes.client import ApiClient

    return ApiClient(*arguments, **named)
