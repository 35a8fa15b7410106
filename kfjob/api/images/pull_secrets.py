"""The logins in the pull secrets that pods name, for a look at their images as the nodes will have it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kfjob.backends.base import Inventory
from kfjob.backends.resources import CORE
from kfjob.errors import Forbidden, KfjobError
from kfjob.image.references import ImageRef
from kfjob.image.registry.docker_config import find_login
from kfjob.image.registry.secrets import LoginSource

_THREADS = 8
_KEYS = (".dockerconfigjson", ".dockercfg")


@dataclass(frozen=True, kw_only=True)
class PullSecret:
    """One of them."""

    name: str
    logins: Mapping[str, Any] = field(repr=False)  # by registry, as Docker's `auths`

    def find_login(self, ref: ImageRef) -> LoginSource | None:
        """For an image; None: it has nothing about its registry, or nothing that can be read."""
        try:  # `auths` alone: a helper that a cluster's secret names is not a program to start here
            found = find_login({"auths": self.logins}, ref.registry, ref.repository, where=f"secret `{self.name}`")
        except KfjobError:
            return None
        return (lambda: found) if found else None


def read_pull_secrets(cluster: Inventory, names: Iterable[str]) -> dict[str, PullSecret]:
    """Those of these secrets that are there and may be read."""

    def one(name: str) -> PullSecret | None:
        try:
            return _of(name, (cluster.get_object(CORE, "secrets", name) or {}).get("data") or {})
        except Forbidden:
            return None

    with ThreadPoolExecutor(_THREADS) as pool:
        return {found.name: found for found in pool.map(one, sorted(names)) if found}


def _of(name: str, data: Mapping[str, str]) -> PullSecret | None:
    for key in _KEYS:
        try:
            said = json.loads(base64.b64decode(data[key], validate=True))
        except (KeyError, ValueError):
            continue
        logins = said.get("auths") if isinstance(said, dict) and key == _KEYS[0] else said
        return PullSecret(name=name, logins=logins) if isinstance(logins, dict) else None
    return None
