"""Read the logins in the pull secrets of pods, to access images as the nodes do."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kfjob.backends.base import Inventory
from kfjob.backends.resources import CORE
from kfjob.base.common_types import JsonMapping
from kfjob.base.concurrency import map_parallel
from kfjob.base.errors import Forbidden, KfjobError
from kfjob.base.parsing import parse_json
from kfjob.image.references import ImageRef
from kfjob.image.registry.docker_config import find_login
from kfjob.image.registry.secrets import LoginSource

_THREADS = 8
"""Pull secrets to read at the same time."""
_CONFIG_KEY, _OLD_CONFIG_KEY = ".dockerconfigjson", ".dockercfg"


@dataclass(frozen=True, kw_only=True)
class PullSecret:
    """A pull secret and its logins."""

    name: str
    logins: JsonMapping = field(repr=False)  # by registry, as Docker's `auths`

    def find_login(self, ref: ImageRef) -> LoginSource | None:
        """Return the source of the login for an image; None if the secret has no readable login for its registry."""
        try:  # only `auths`: kfjob does not start a credential helper that a secret of the cluster names
            login = find_login({"auths": self.logins}, ref.registry, ref.repository, location=f"secret `{self.name}`")
        except KfjobError:
            return None
        return (lambda: login) if login else None


def read_pull_secrets(cluster: Inventory, names: Iterable[str]) -> dict[str, PullSecret]:
    """Return those of the secrets that exist and can be read, by name."""

    def read(name: str) -> PullSecret | None:
        try:
            return _parse_secret(name, (cluster.get_object(CORE, "secrets", name) or {}).get("data") or {})
        except Forbidden:
            return None

    secrets = map_parallel(read, sorted(names), threads=_THREADS, name="pull-secrets")
    return {secret.name: secret for secret in secrets if secret}


def _parse_secret(name: str, data: Mapping[str, str]) -> PullSecret | None:
    for key in (_CONFIG_KEY, _OLD_CONFIG_KEY):
        try:
            config = parse_json(base64.b64decode(data[key], validate=True))
        except (KeyError, ValueError):
            continue
        logins = config.get("auths") if isinstance(config, dict) and key == _CONFIG_KEY else config
        return PullSecret(name=name, logins=logins) if isinstance(logins, dict) else None
    return None
