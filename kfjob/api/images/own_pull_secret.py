"""The pull secret that kfjob keeps where a spec says `make_pull_secret`: made, or made anew, before a job is created.

One for each registry in a namespace, so that every submit renews it for the jobs that are there already too. It belongs to no
job and is not deleted with one; an ECR token in it is of no use after twelve hours. It is no part of what `render` shows.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kfjob.api.target import Target
from kfjob.errors import Forbidden, UsageError
from kfjob.image.references import DOCKER_HUB, ImageRef, parse_reference
from kfjob.plan import JobPlan
from kfjob.spec import api_objects

if TYPE_CHECKING:
    from kfjob.image.registry.secrets import Login

_HUB_KEY = "https://index.docker.io/v1/"


def apply_pull_secret(target: Target, plan: JobPlan) -> None:
    """Make or renew the secret, if the plan has one.

    Raises:
        Forbidden: nobody is logged in to the registry, or secrets may not be made in the namespace.
    """
    if not plan.own_pull_secret:
        return
    from kfjob.image import auth  # with its HTTP client

    ref = parse_reference(plan.image)
    login = auth.make_login_source(ref, profile=target.settings.aws_profile)()
    if login is None:
        hint = "`docker login` first, name a secret in `image_pull_secrets`, or leave `make_pull_secret` out for a public image"
        raise Forbidden(f"nobody is logged in to `{ref.registry}`, so there is no pull secret to make", hint=hint)
    target.cluster.apply_object(make_pull_secret(plan, ref, login, datetime.now(UTC)))


def make_pull_secret(plan: JobPlan, ref: ImageRef, login: Login, now: datetime) -> dict[str, Any]:
    """The object.

    Raises:
        UsageError: the login is of a kind that no kubelet takes.
    """
    from kfjob.image.registry.secrets import REFRESH_TOKEN

    if login.user == REFRESH_TOKEN:
        hint = "make a secret with a user's name and a password or access token, and name it in `image_pull_secrets`"
        raise UsageError(f"the login for `{ref.registry}` is an identity token, with which no kubelet can pull", hint=hint)
    text = f"{login.user}:{login.password.reveal()}"
    host = _HUB_KEY if ref.registry == DOCKER_HUB else ref.registry
    config = json.dumps({"auths": {host: {"auth": base64.b64encode(text.encode()).decode()}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": plan.own_pull_secret,
            "namespace": plan.namespace,
            "labels": {api_objects.LABEL_MANAGED_BY: api_objects.FIELD_MANAGER},
            "annotations": {api_objects.ANNOTATION_SECRET_TIME: now.strftime("%Y-%m-%dT%H:%M:%SZ")},
        },
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(config.encode()).decode()},
    }
