"""The images that a job's pods need, read from the manifests; init containers and sidecars are included. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from kfjob.base.common_types import JsonMapping
from kfjob.kinds.base import PodTemplate
from kfjob.kinds.registry import read_pod_templates

_ARCHITECTURE = "kubernetes.io/arch"


class RequiredImage(Struct, frozen=True, kw_only=True):
    """An image and the container that runs it."""

    image: str
    container: str  # as in messages; "" is the training container
    pull_secrets: tuple[str, ...] = ()  # names of the pod's pull secrets
    architecture: str = ""  # of the pod's nodes, if the pod selects one


def find_required_images(manifests: Iterable[JsonMapping], *, architecture: str = "") -> list[RequiredImage]:
    """Return each image once, the training container's first, without those of `imagePullPolicy: Never`.

    `architecture` is that of the training pods' nodes, for templates that do not select one.
    """
    images: dict[tuple[str, str], RequiredImage] = {}
    for template in read_pod_templates(manifests):
        for required in _read_template(template, architecture):
            images.setdefault((required.image, required.architecture), required)
    return sorted(images.values(), key=lambda required: bool(required.container))


def _read_template(template: PodTemplate, training_architecture: str) -> Iterator[RequiredImage]:
    secrets = tuple(secret["name"] for secret in template.spec.get("imagePullSecrets") or () if secret.get("name"))
    architecture = str((template.spec.get("nodeSelector") or {}).get(_ARCHITECTURE) or "")
    if not architecture and template.training_container:
        architecture = training_architecture
    for prefix, field in (("", "containers"), ("init ", "initContainers")):
        for container in template.spec.get(field) or ():
            if not container.get("image") or container.get("imagePullPolicy") == "Never":
                continue
            kind = "sidecar" if container.get("restartPolicy") == "Always" else f"{prefix}container"
            is_training = not prefix and container.get("name") == template.training_container
            yield RequiredImage(
                image=container["image"],
                container="" if is_training else f"{kind} `{container.get('name', '')}`",
                pull_secrets=secrets,
                architecture=architecture,
            )
