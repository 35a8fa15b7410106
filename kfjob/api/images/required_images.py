"""The images that a job's pods start, read off the objects themselves: init containers and sidecars count too. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kfjob.common_types import JsonMapping
from kfjob.compile.pod_templates import PodTemplate, read_pod_templates
from kfjob.events import TRAINING_CONTAINER
from kfjob.spec.api_objects import find_training_container

_ARCHITECTURE = "kubernetes.io/arch"


@dataclass(frozen=True, kw_only=True)
class RequiredImage:
    """One image, and who starts it."""

    image: str
    container: str  # as messages call it; "" is the training container
    pull_secrets: tuple[str, ...] = ()  # names of the pull secrets of its pod
    architecture: str = ""  # of the nodes that its pod may go to, where the pod says so


def find_required_images(objects: Iterable[JsonMapping], *, architecture: str = "") -> list[RequiredImage]:
    """Each once, the training container's first; not those that must be on the node already (`imagePullPolicy: Never`).

    `architecture` is that of the training pods' nodes, where they do not say it themselves.
    """
    found: dict[tuple[str, str], RequiredImage] = {}
    for pod in read_pod_templates(objects):
        for needed in _of_pod(pod, architecture):
            found.setdefault((needed.image, needed.architecture), needed)
    return sorted(found.values(), key=lambda needed: bool(needed.container))


def _of_pod(pod: PodTemplate, architecture: str) -> Iterator[RequiredImage]:
    secrets = tuple(one["name"] for one in pod.spec.get("imagePullSecrets") or () if one.get("name"))
    said = str((pod.spec.get("nodeSelector") or {}).get(_ARCHITECTURE) or "")
    trains = bool(find_training_container(pod.spec))
    for what, containers in (("", "containers"), ("init ", "initContainers")):
        for one in pod.spec.get(containers) or ():
            if not one.get("image") or one.get("imagePullPolicy") == "Never":
                continue
            kind = "sidecar " if one.get("restartPolicy") == "Always" else f"{what}container "
            is_trainer = not what and one.get("name") == TRAINING_CONTAINER
            yield RequiredImage(
                image=one["image"],
                container="" if is_trainer else f"{kind}`{one.get('name', '')}`",
                pull_secrets=secrets,
                architecture=said or (architecture if trains else ""),
            )
