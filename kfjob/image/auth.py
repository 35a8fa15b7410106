"""Whoever the user is, at any registry: one of ECR's by AWS credentials, others by what `docker login` has kept."""

from __future__ import annotations

from kfjob.errors import Forbidden
from kfjob.image import ecr
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.docker_config import find_stored_login
from kfjob.image.registry.endpoints import Use, find_endpoint, list_config_folders
from kfjob.image.registry.secrets import Login, LoginSource
from kfjob.image.registry.transport import DEFAULT_RETRIES, RetryPolicy


def make_login_source(ref: ImageRef, use: Use = "pull", *, profile: str | None = None) -> LoginSource:
    """Who asks about this image. In ECR, where there are no AWS credentials, whoever `docker login` has kept.

    The public ECR gives its images to everybody: there, pulling needs nobody to be logged in.
    """

    def login() -> Login | None:
        if ref.ecr is None:
            return find_stored_login(ref.registry, ref.repository)
        try:
            return ecr.open_registry(ref, profile=profile).get_login()
        except Forbidden:
            if (stored := find_stored_login(ref.registry, ref.repository)) or (ref.ecr.public and use == "pull"):
                return stored
            raise

    return login


def open_registry(
    ref: ImageRef,
    use: Use,
    *,
    profile: str | None = None,
    login: LoginSource | None = None,
    retries: RetryPolicy = DEFAULT_RETRIES,
) -> Registry:
    """The registry of an image, ready to be asked as the user, or as whoever `login` says; to be closed."""
    place = find_endpoint(ref.host, use, folders=list_config_folders(), registry=ref.registry)
    return Registry(place, login=login or make_login_source(ref, use, profile=profile), retries=retries)
