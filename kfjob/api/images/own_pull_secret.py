"""Create or renew kfjob's own pull secret for a spec with `make_pull_secret`, before its job is created.

A namespace has one such secret for each registry, so every submit renews it for existing jobs too. It belongs to no job and is
not deleted with one. An ECR token in it expires after twelve hours. `render` does not show it.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kfjob.api.prepared import PreparedJob
from kfjob.api.target import Target
from kfjob.base.common_types import JsonObject
from kfjob.base.errors import Forbidden, UsageError
from kfjob.image.references import DOCKER_HUB, ImageRef, parse_reference
from kfjob.objects import api_objects
from kfjob.plan import JobPlan

if TYPE_CHECKING:
    from kfjob.image.registry.secrets import Login


def apply_pull_secret(job: PreparedJob) -> None:
    """Create or renew the secret, if the job has one.

    Raises:
        Forbidden: the user is not logged in to the registry, or not allowed to create secrets in the namespace.
    """
    roles = job.resolved[1].roles if job.resolved else ()
    for role in {role.own_pull_secret: role for role in roles if role.own_pull_secret}.values():
        _apply_secret(job.target, role)


def _apply_secret(target: Target, plan: JobPlan) -> None:
    from kfjob.image import auth  # imports an HTTP client

    ref = parse_reference(plan.image)
    login = auth.make_login_source(ref, profile=target.settings.aws_profile)()
    if login is None and not target.settings.image_check:
        return  # the guard has no logins: the job starts with the secret of its last submit
    if login is None:
        hint = "`docker login`, name a secret in `image_pull_secrets`, or remove `make_pull_secret` for a public image"
        raise Forbidden(f"cannot make a pull secret: you are not logged in to `{ref.registry}`", hint=hint)
    target.cluster.apply_object(make_pull_secret(plan, ref, login, datetime.now(UTC)))


def make_pull_secret(plan: JobPlan, ref: ImageRef, login: Login, now: datetime) -> JsonObject:
    """Return the secret's manifest.

    Raises:
        UsageError: the login is an identity token, which the kubelet does not accept.
    """
    from kfjob.image.registry.docker_config import HUB_KEY
    from kfjob.image.registry.secrets import REFRESH_TOKEN

    if login.user == REFRESH_TOKEN:
        hint = "create a secret with a user name and a password or access token, and name it in `image_pull_secrets`"
        raise UsageError(f"the login for `{ref.registry}` is an identity token, which the kubelet does not accept", hint=hint)
    text = f"{login.user}:{login.password.reveal()}"
    host = HUB_KEY if ref.registry == DOCKER_HUB else ref.registry
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
