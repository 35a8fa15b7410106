"""Whoever the user is, at any registry: one of ECR's by AWS credentials, others by what `docker login` has kept."""

from __future__ import annotations

from kfjob.errors import Forbidden
from kfjob.image import ecr
from kfjob.image.references import ImageRef
from kfjob.image.registry.client import Registry
from kfjob.image.registry.docker_config import stored_login
from kfjob.image.registry.endpoints import Use, endpoint, folders_here
from kfjob.image.registry.secrets import Login, LoginSource
from kfjob.image.registry.transport import PATIENT, Patience


def login_source(ref: ImageRef, *, profile: str | None = None) -> LoginSource:
    """Who asks about this image. In ECR, where there are no AWS credentials, whoever `docker login` has kept."""

    def login() -> Login | None:
        if ref.ecr is None:
            return stored_login(ref.registry, ref.repository)
        try:
            return ecr.registry_of(ref, profile=profile).login()
        except Forbidden:
            if stored := stored_login(ref.registry, ref.repository):
                return stored
            raise

    return login


def opened(ref: ImageRef, use: Use, *, profile: str | None = None, patience: Patience = PATIENT) -> Registry:
    """The registry of an image, ready to be asked; to be closed."""
    place = endpoint(ref.host, use, folders=folders_here())
    return Registry(place, login=login_source(ref, profile=profile), patience=patience)
