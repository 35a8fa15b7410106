"""Log in to registries: to ECR with AWS credentials, to others with what `docker login` stored."""

from __future__ import annotations

from kfjob.base.errors import Forbidden, UsageError
from kfjob.base.http import Limits
from kfjob.image import ecr
from kfjob.image.references import ImageRef, parse_reference
from kfjob.image.registry.client import Registry
from kfjob.image.registry.docker_config import find_stored_login
from kfjob.image.registry.endpoints import Endpoint, Use, find_endpoint, list_config_folders
from kfjob.image.registry.secrets import Login, LoginSource, anonymous
from kfjob.image.registry.transport import DEFAULT_LIMITS


def make_login_source(ref: ImageRef, use: Use = "pull", *, profile: str | None = None) -> LoginSource:
    """Return the source of logins for the registry of an image.

    For ECR without AWS credentials, it falls back to what `docker login` stored. The public ECR allows anonymous pulls.
    """

    def find_login() -> Login | None:
        if ref.ecr is None:
            return find_stored_login(ref.registry, ref.repository)
        try:
            return ecr.open_registry(ref, profile=profile).get_login()
        except Forbidden:
            if (stored := find_stored_login(ref.registry, ref.repository)) or (ref.ecr.public and use == "pull"):
                return stored
            raise

    return find_login


def open_registry(
    ref: ImageRef,
    use: Use,
    *,
    profile: str | None = None,
    login: LoginSource | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Registry:
    """Return a client for the registry of an image, logged in as the user or by `login`. The caller closes it.

    A mirror that `hosts.toml` names never receives the registry's login: it receives the login that is stored for its own host.
    """
    endpoint = find_endpoint(ref.host, use, folders=list_config_folders(), registry=ref.registry)
    if endpoint.is_mirror:
        login = _make_mirror_login_source(endpoint, ref, use, profile)
    return Registry(endpoint, login=login or make_login_source(ref, use, profile=profile), limits=limits)


def _make_mirror_login_source(endpoint: Endpoint, ref: ImageRef, use: Use, profile: str | None) -> LoginSource:
    try:
        return make_login_source(parse_reference(f"{endpoint.host}/{ref.repository}"), use, profile=profile)
    except UsageError:  # its host is not one that an image can name
        return anonymous
