"""Change the pods in the objects of a job: the image of their training containers, and the nodes that they avoid. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any

from kfjob.base.common_types import JsonObject
from kfjob.base.errors import UsageError
from kfjob.kinds.registry import get_kind, is_job

ImageChange = Callable[[str], str]
"""Returns the image to run in place of the image it receives."""


def replace_image(objects: Sequence[JsonObject], change: ImageChange) -> list[JsonObject]:
    """Return the objects with a new image in every container that has the training image, init containers included.

    Raises:
        UsageError: the training containers have several images, or none.
    """
    training = {get_kind(item).training_container for item in objects if is_job(item)}
    images = {str(container.get("image") or "") for container in _containers(objects) if container.get("name") in training}
    if len(images) != 1 or not all(images):
        shown = ", ".join(f"`{image}`" for image in sorted(images) if image) or "none"
        hint = "use one image for all replicas, or push the image with `kfjob push-image`"
        cause = f"images of the training containers: {shown}"
        raise UsageError("a job with several images, or without an image, cannot get another image", cause=cause, hint=hint)
    (old_image,) = images
    new_image, new_objects = change(old_image), deepcopy(list(objects))
    for container in _containers(new_objects):
        if container.get("image") == old_image:
            container["image"] = new_image
    return new_objects


def avoid_nodes(objects: Sequence[JsonObject], nodes: Sequence[str]) -> list[JsonObject]:
    """Return the objects with pods that no scheduler places on these nodes, beside the affinity that they have."""
    new_objects = deepcopy(list(objects))
    expressions = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]  # each takes one value
    for job in new_objects if nodes else ():
        if is_job(job):
            for template in get_kind(job).read_pod_templates(job, new_objects):
                pods = (_get(item, template.path) for item in (job, *new_objects))
                _require(next(pod for pod in pods if isinstance(pod, dict)), expressions)
    return new_objects


def _get(item: Any, path: Sequence[str | int]) -> Any:
    """Return what stands at a path of an object; None if that does not exist."""
    try:
        return reduce(lambda value, step: value[step], path, item)
    except (KeyError, IndexError, TypeError):
        return None


def _require(pod: JsonObject, expressions: Sequence[JsonObject]) -> None:
    """Add field expressions to every term of a pod's required node affinity: one of the terms has to match."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = pod["affinity"] = pod.get("affinity") or {}
    node_affinity = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(key) or {}).get("nodeSelectorTerms") or [{}]
    node_affinity[key] = {
        "nodeSelectorTerms": [{**term, "matchFields": [*(term.get("matchFields") or ()), *expressions]} for term in terms]
    }


def _containers(objects: Sequence[JsonObject]) -> Iterator[JsonObject]:
    for job in objects:
        if is_job(job):
            for template in get_kind(job).read_pod_templates(job, objects):
                yield from (*(template.spec.get("initContainers") or ()), *(template.spec.get("containers") or ()))
